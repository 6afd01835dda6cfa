#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "etude/callback.hpp"
#include "etude/callbacks/run_history.hpp"
#include "etude/events.hpp"
#include "etude/metrics/metric_history.hpp"
#include "etude/metrics/metrics.hpp"

namespace etude::inline v0 {

/// Finds new values in a run's history, either of training metrics, whose names begin with "train", or of all
/// other metrics.
class NewMetrics {
 public:
  /// Returns the metrics that have new values since the last call, each with its latest value, in the
  /// history's order.
  Metrics take(const RunHistory& history, bool of_training);

  /// Marks all current values as seen.
  void skip(const RunHistory& history);

 private:
  std::map<std::string, std::size_t> seen_;  // the number of values seen
};

namespace detail {
void print_metrics(const Context& e, const Metrics& metrics);
}

/// To log metrics elsewhere or in another form, derive `struct MyLogger : etude::LogMetricsBase<MyLogger>`,
/// with `using LogMetricsBase::LogMetricsBase;`, and override `log_metrics`. See LogMetricsCallback.
template <class Derived>
class LogMetricsBase {
 public:
  using runs_after = callbacks<RunHistoryCallback>;

  /// Records the metrics that it logs, as a RunHistoryCallback would.
  LogMetricsBase() = default;
  /// Logs the metrics that other callbacks record in `history`. Throws ArgumentError for a null pointer.
  explicit LogMetricsBase(std::shared_ptr<RunHistory> history)
      : recorder_(std::move(history)), records_(false) {}

  /// Prints each metric, in the first process of each machine.
  void log_metrics(const Context& e, const Metrics& metrics) { detail::print_metrics(e, metrics); }

  void on(const TrainBegin& e) {
    if (records_) recorder_.on(e);
    new_metrics_.skip(recorder_.history());
  }
  void on(const StepBegin& e) { record(e); }
  void on(const ForwardBegin& e) { record(e); }
  void on(const BackwardEnd& e) { record(e); }
  void on(const StepRestarted& e) { record(e); }
  void on(const StepSkipped& e) { record(e); }
  void on(const StepEnd& e) { record(e); }
  void on(const EvaluateBegin& e) { record(e); }
  void on(const Evaluate& e) {
    record(e);
    log_new(e, false);
  }
  void on(const EvaluateEnd& e) { record(e); }
  void on(const EpochEnd& e) {
    record(e);
    log_new(e, true);
  }
  void on(const TrainingRunEpochEnd& e) { record(e); }
  void on(const TrainEnd& e) { record(e); }

  nlohmann::ordered_json state() const {
    return records_ ? recorder_.state() : nlohmann::ordered_json::object();
  }
  void load_state(const nlohmann::ordered_json& saved) {
    if (records_) recorder_.load_state(saved);
  }

 private:
  template <class Event>
  void record(const Event& e) {
    if (records_) recorder_.on(e);
  }

  void log_new(const Context& e, bool of_training) {
    const auto metrics = new_metrics_.take(recorder_.history(), of_training);
    if (!metrics.empty()) static_cast<Derived&>(*this).log_metrics(e, metrics);
  }

  RunHistoryCallback recorder_;
  bool records_ = true;
  NewMetrics new_metrics_;
};

/// Prints metrics to standard output, one per line: metrics whose names begin with "train" at the end of an
/// epoch, and all others at the end of an evaluation. Follows pytorch-accelerated's callback of this name;
/// each recorded value is logged once, in the history's order. `LogMetricsCallback(history)` uses a history
/// that other callbacks fill, such as a RunHistoryCallback; without an argument, the callback records its
/// own. To log elsewhere, see LogMetricsBase.
struct LogMetricsCallback : LogMetricsBase<LogMetricsCallback> {
  using LogMetricsBase::LogMetricsBase;
};

}  // namespace etude::inline v0
