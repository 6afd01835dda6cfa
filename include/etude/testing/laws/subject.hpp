#pragma once

#include <concepts>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/callback.hpp"
#include "etude/callbacks/default_flow.hpp"
#include "etude/dispatch/callback_checks.hpp"
#include "etude/dispatch/callback_state.hpp"
#include "etude/dispatch/runtime_callbacks.hpp"
#include "etude/events.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"
#include "etude/reflect/type_name.hpp"
#include "etude/testing/laws/stage.hpp"
#include "etude/trainer.hpp"

namespace etude::inline v0::laws::detail {

/// Handles every event before the tested callback, and may disturb it.
struct Front {
  std::shared_ptr<Stage> stage;
  template <std::derived_from<Context> Event>
    requires(!std::is_const_v<Event>)
  void on(Event& e) {
    hear(e, short_type_name<Event>());
  }
  void hear(const Context& e, std::string_view event);
};

/// The same trainer type for all callbacks. They are added at run time, so a check compiles quickly.
using LawTrainer =
    Trainer<DistributedDataParallel, NoDefaultCallbacks, Front, DefaultFlowCallback, RuntimeCallbacks>;

/// A type-erased tested callback.
struct AnySubject {
  virtual ~AnySubject() = default;
  /// Null if it has no state.
  virtual nlohmann::ordered_json state() const = 0;

  /// To be called in the catch block for an exception that the callback threw.
  void note_exception(std::string_view event);

  std::vector<std::string> errors = {};  ///< the exceptions that the callback threw
};

template <class Callback>
struct Held final : AnySubject {
  template <class Make>
  Held(Make& make, const std::filesystem::path& folder) : callback(made(make, folder)) {
    if constexpr (etude::detail::is_stateful<Callback>()) saved.emplace(callback);
  }
  template <class Make>
  static Callback made(Make& make, const std::filesystem::path& folder) {
    if constexpr (std::is_invocable_r_v<Callback, Make&, const std::filesystem::path&>)
      return make(folder);
    else
      return make();
  }
  nlohmann::ordered_json state() const override { return saved ? saved->save() : nullptr; }

  Callback callback;
  std::optional<CallbackState> saved;
};

/// Wraps a callback in a trainer, and records what it throws.
template <class Callback>
struct Subject {
  static constexpr bool allows_duplicates = true;
  using handles = events<>;  // allows a callback that handles none of a trainer's events

  explicit Subject(std::shared_ptr<Held<Callback>> held_) : held(std::move(held_)) {}

  template <std::derived_from<Context> Event>
    requires etude::detail::reads<Callback, Event>
  void on(const Event& e) {
    deliver(e);
  }
  template <std::derived_from<Context> Event>
    requires(!std::is_const_v<Event> && Writes<Callback, Event>)
  void on(Event& e) {
    deliver(e);
  }

  nlohmann::ordered_json state() const
    requires etude::detail::Stateful<Callback>
  {
    return held->state();
  }
  void load_state(const nlohmann::ordered_json& saved)
    requires etude::detail::Stateful<Callback>
  {
    StateReport report;
    held->saved->load(saved, report);
    for (const auto& problem : report.problems) held->errors.push_back(problem);
  }

  std::shared_ptr<Held<Callback>> held;

 private:
  template <class Event>
  void deliver(Event& e) {
    try {
      held->callback.on(e);
    } catch (...) {
      held->note_exception(short_type_name<std::remove_const_t<Event>>());
      throw;
    }
  }
};

/// A type-erased callback to test.
struct Trial {
  std::string name;
  bool writes;  ///< changes some event
  std::function<std::shared_ptr<AnySubject>(LawTrainer&, const std::filesystem::path& folder)> add;
};

template <class Callback, class... Events>
constexpr bool writes_any(events<Events...>) {
  return (Writes<Callback, Events> || ...);
}

template <class Callback, class Make>
Trial trial_of(Make make) {
  return {.name = std::string(short_type_name<Callback>()),
          .writes = writes_any<Callback>(Vocabulary{}),
          .add = [make = std::move(make)](LawTrainer& trainer, const std::filesystem::path& folder) mutable
          -> std::shared_ptr<AnySubject> {
            auto held = std::make_shared<Held<Callback>>(make, folder);
            trainer.add_callback(Subject<Callback>(held));
            return held;
          }};
}

}  // namespace etude::inline v0::laws::detail
