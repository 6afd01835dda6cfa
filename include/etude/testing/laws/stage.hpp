#pragma once

#include <concepts>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "etude/events.hpp"
#include "etude/reflect/type_name.hpp"
#include "etude/testing/laws/moment.hpp"

namespace etude::inline v0::laws::detail {

/// Observes every event before and after the tested callback.
class Stage {
 public:
  /// Starts the next training.
  void begin(const Disturbance& next);

  void before(const Context& e, std::string_view event);
  void behind(const Context& e, std::string_view event);
  void behind(const Save& e);
  void forward(bool is_training);

  Disturbance disturbance;
  Run run;
  std::function<void()> inside;     ///< Called once in the middle of the training.
  std::filesystem::path keep = {};  ///< Where to copy folders at `Save`; nowhere if empty.

 private:
  void disturb(const Context& e, std::string_view event, bool before);

  int seen_ = 0;
  std::vector<Moment> evaluations_;  // moments at which the current evaluations began
};

/// Handles every event after the tested callback.
struct Behind {
  std::shared_ptr<Stage> stage;
  template <std::derived_from<Context> Event>
  void on(const Event& e) {
    if constexpr (std::same_as<Event, Save>) stage->behind(e);
    stage->behind(e, short_type_name<Event>());
  }
};

}  // namespace etude::inline v0::laws::detail
