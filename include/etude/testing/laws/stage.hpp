#pragma once

#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/error.hpp"
#include "etude/events.hpp"
#include "etude/reflect/type_name.hpp"
#include "etude/testing/laws/options.hpp"
#include "etude/testing/laws/subject.hpp"

namespace etude::laws::detail {

/// What disturbs a training from outside the callback.
struct Disruption : Error {
  using Error::Error;
};

/// How, and where.
struct Disturbance {
  enum class Way { none, throws, throws_stop, asks_to_stop };
  Way way = Way::none;
  std::string_view event = {};  ///< or, in words, a forward of the model
  bool before = false;          ///< the callback hears of the event, or behind it
  int nth = 1;                  ///< such event

  std::string words() const;
};

/// How everything stood behind an event.
struct Moment {
  std::string_view event = {};
  std::int64_t step = 0;
  std::vector<std::pair<std::string, torch::Tensor>> weights = {};
  std::vector<std::pair<std::string, bool>> modes = {};
  torch::Tensor random = {};

  std::string words() const;
};

/// What was seen of one `train()`.
struct Run {
  std::vector<Moment> moments = {};
  std::optional<std::size_t> asked = {};   ///< How many moments had passed when it was asked to stop.
  std::vector<std::string> breaches = {};  ///< of the first law
  std::vector<std::pair<std::int64_t, std::filesystem::path>> kept = {};  ///< Folders as they were at `Save`.
  bool disturbed = false;
  std::string error = {};  ///< What came out of it, but for what was thrown to disturb it.
  bool came_out = false;   ///< What was thrown to disturb it.

  // In the end.
  nlohmann::ordered_json logs = {};
  std::vector<nlohmann::ordered_json> states = {};
};

/// Hears every event on both sides of the callback that is tried.
class Stage {
 public:
  /// Another training begins.
  void begin(const Disturbance& next);

  void before(const Context& e, std::string_view event);
  void behind(const Context& e, std::string_view event);
  void behind(const Save& e);
  void forward(bool is_training);

  Disturbance disturbance;
  Run run;
  std::function<void()> inside;     ///< Called once in the midst of the training.
  std::filesystem::path keep = {};  ///< Where folders are copied to at `Save`; empty is nowhere.

 private:
  void disturb(const Context& e, std::string_view event, bool before);

  int seen_ = 0;
  std::vector<Moment> evaluations_;  // where those under way began
};

/// Hears every event behind the callback that is tried.
struct Behind {
  std::shared_ptr<Stage> stage;
  template <std::derived_from<Context> Event>
  void on(const Event& e) {
    if constexpr (std::same_as<Event, Save>) stage->behind(e);
    stage->behind(e, short_type_name<Event>());
  }
};

/// A folder that is gone with it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// How a performance differs from the plain one: one callback that is tried, no checkpoints.
struct Setting {
  int subjects = 1;
  std::filesystem::path folder = {};
  bool saves = false;
  std::function<void()> inside = {};
  std::filesystem::path resume = {};
  std::filesystem::path keep = {};
};

/// A trainer on the laws' problem, with callbacks that are tried.
class Performance {
 public:
  Performance(const Trial& trial, const Options& options, const Setting& setting);

  Run train(const Disturbance& disturbance = {});

  /// Evaluates and predicts outside of a training; what goes wrong, in words.
  std::vector<std::string> evaluate();

 private:
  void collect_errors(std::vector<std::string>& into);

  Setting setting_;
  std::shared_ptr<Stage> stage_ = std::make_shared<Stage>();
  LawTrainer trainer_;
  std::vector<std::shared_ptr<AnySubject>> subjects_;
};

Moment moment_of(const Context& e, std::string_view event);

}  // namespace etude::laws::detail

#ifndef ETUDE_COMPILED
#include "etude/testing/laws/stage-inl.hpp"
#endif
