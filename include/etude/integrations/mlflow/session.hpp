#pragma once

#include <functional>
#include <memory>

#include "etude/events.hpp"
#include "etude/integrations/mlflow/run.hpp"
#include "etude/integrations/shared/not_copied.hpp"

namespace etude::inline v0::detail {

/// A callback's open run, kept from event to event. It is opened when training begins, or by the first log of
/// an earlier evaluation. When training ends, its status is set, and it stays open for later logs.
class MLflowSession {
 public:
  /// Creates the run of a training that `resumes` or begins; returns null if there shouldn't be one.
  using Open = std::function<std::unique_ptr<MLflowRun>(const Context& e, bool resumes)>;

  /// Returns a callback's session, created if necessary; null outside the first process.
  static MLflowSession* of(NotCopied<MLflowSession>& open_run, const Context& e);

  void begin(const TrainBegin& e, const Open& open);
  void log(const Context& e, const Metrics& metrics, const Open& open);
  void log(const LogSamples& e, const Open& open);
  void save(const Save& e);
  void stop(const Stop& e);
  void fail();
  void end();

 private:
  bool is_open(const Context& e, const Open& open);

  std::unique_ptr<MLflowRun> run_;
  bool is_training_ = false, has_trained_ = false, has_failed_ = false, was_killed_ = false;
};

}  // namespace etude::inline v0::detail
