#pragma once

#include <torch/types.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/any_trainer.hpp"
#include "etude/base/function_ref.hpp"
#include "etude/dispatch/callback_handler.hpp"
#include "etude/dispatch/callback_state.hpp"
#include "etude/dispatch/describe.hpp"
#include "etude/dispatch/event_table.hpp"
#include "etude/dispatch/runtime_callbacks.hpp"
#include "etude/events.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/trainer_table.hpp"
#include "etude/reflect/type_name.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

namespace detail {

/// The first of several exceptions; those that follow are reported on the terminal.
class FirstError {
 public:
  explicit FirstError(const TrainingArguments& args) : args_(args) {}
  /// Notes the current exception.
  void operator()();
  /// Throws it, if there is one.
  void rethrow();

 private:
  const TrainingArguments& args_;
  ErrorOrigin first_;
};

/// Writes each callback's time to the trace.
struct TracedCallbacks {
  ActivityClock& clock;
  ActivityClock::Slice operator()(std::string_view callback) const {
    return ActivityClock::Slice(clock, callback);
  }
};

/// A metric that a callback waits for: the result of its method `std::string watched_metric() const`, or
/// nothing.
struct RequiredMetric {
  std::string_view callback;
  std::string name;
};

/// A callback of a trainer's list, type-erased.
struct ListedCallback {
  CallbackHandling handling;  // of the vocabulary
  const void* callback;
  std::string (*watched_metric)(const void* callback);  // null if it waits for none
  bool (*reads_parameters)(const void* callback);
  /// Whether it may change or receive the results of an evaluation; run-time callbacks are checked
  /// separately.
  bool may_add_metrics;
};

template <class Callback>
ListedCallback listed_callback(const Callback& callback) {
  ListedCallback result{
      handling_of(callback, Vocabulary{}), &callback, nullptr,
      [](const void* self) { return reads_parameters(*static_cast<const Callback*>(self)); }, false};
  if constexpr (requires {
                  { callback.watched_metric() } -> std::same_as<std::string>;
                })
    result.watched_metric = [](const void* self) {
      return static_cast<const Callback*>(self)->watched_metric();
    };
  if constexpr (!std::same_as<Callback, RuntimeCallbacks>)
    result.may_add_metrics = Writes<Callback, Log> || Writes<Callback, Evaluate> ||
                             Writes<Callback, EvaluateAll> ||
                             (!type_name<Callback>().starts_with("etude::") &&
                              (Handles<Callback, EvaluateBegin> || Handles<Callback, PredictionStepBegin> ||
                               Handles<Callback, PredictionStep>));
  return result;
}

}  // namespace detail

/// Raises a trainer's events, and makes every exit the same: each open scope gets its end event, every
/// callback gets the error, and the exception propagates unchanged. The loops use this class, and know a
/// trainer's type only by its TrainerTable.
class EventSource {
 public:
  /// Nothing is raised before `connect`.
  EventSource();
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;
  ~EventSource();

  /// Called by the trainer, which owns this object and then lists its callbacks. The trainer's destructor
  /// calls it again, with another table, once the derived part is destroyed.
  void connect(TrainerRef trainer, const TrainerTable& table);

  /// Adds a callback of the trainer's list, which must not move.
  template <class Callback>
  void list(Callback& callback) {
    add(detail::listed_callback(callback));
    if constexpr (detail::is_stateful<Callback>()) add(CallbackState(callback));
  }

  /// The trainer's methods.
  TrainerMethods trainer() const { return {*trainer_, table_->methods}; }
  TrainerCore& core() { return core_; }
  const TrainerCore& core() const { return core_; }

  /// The states of all callbacks that have one: of the list, and then of those added at run time.
  std::vector<CallbackState> states() const;
  /// The types of all callbacks, including run-time ones.
  std::vector<std::string_view> callback_names() const;
  /// See `AnyTrainer::event_handlers`.
  std::vector<EventHandlers> event_handlers() const;
  /// The metrics that callbacks wait for.
  std::vector<detail::RequiredMetric> required_metrics() const;
  /// The first callback that reads the model's parameters between steps; empty if none does.
  std::string_view reader_of_parameters() const;
  /// Whether a callback, or the trainer's `log`, may add metrics to an evaluation.
  bool may_add_metrics() const;

  /// Throws ArgumentError for a tracker in `report_to` that isn't among the callbacks.
  void check_trackers() const;

  /// Whether anything handles `Event`.
  template <class Event>
  bool hears() const {
    return slot<Event>().raise != nullptr;
  }
  /// Whether a handler may change `Event`.
  template <class Event>
  bool is_written() const {
    return slot<Event>().is_written || (runtime_ && runtime_->writes(detail::event_index<Event>()));
  }

  /// Raises an event of the loop, made of the context and `payload`, if anything handles it. Returns the
  /// event with the handlers' changes, or nothing if no handler exists.
  template <class Event, class... Payload>
  std::optional<Event> raise(Payload&&... payload) {
    if (!hears<Event>()) return std::nullopt;
    std::optional<Event> event = Event{core_.context(), std::forward<Payload>(payload)...};
    try {
      deliver(*event);
    } catch (const StopTraining& stop) {
      stop_or_go_on(stop);
    }
    return event;
  }

  /// The handled events among `Events`, each with its callbacks, including the trainer itself.
  template <class... Events>
  std::vector<detail::HandledEvent> handlers_of(events<Events...>) const {
    return handlers_of(std::vector{short_type_name<Events>()...});
  }

  /// Checks the loss after `BackwardBegin`: throws DataError, naming the callbacks that may have changed it,
  /// unless it can be differentiated.
  void check_written(const torch::Tensor& loss) const;

  /// Begins a scope. However the scope ends, `End` is raised.
  template <class End>
  void open() {
    open_.push_back(&end_scope<End>);
  }

  /// Ends the innermost scope with an event made of the context and `payload`, and returns it.
  template <class End, class... Payload>
  End leave(Payload&&... payload) {
    End event{core_.context(), std::forward<Payload>(payload)...};
    open_.pop_back();
    if (!hears<End>()) return event;
    try {
      raise_end(event);
    } catch (const StopTraining& stop) {
      stop_or_go_on(stop);
    }
    return event;
  }

  /// The number of open scopes.
  std::size_t depth() const { return open_.size(); }

  /// Closes the scopes opened since `depth`, the last one first.
  void close_to(std::size_t depth);

  /// Runs cleanup after an error: exceptions from it are reported, not thrown.
  void attempt(detail::FunctionRef<void()> part);

  /// Reports an error once: to every callback, and on the terminal.
  void report(const std::exception_ptr& error);

  /// Runs a method of the trainer with this error handling.
  template <class Method>
  auto guarded(Method method) {
    using Result = decltype(method());
    if constexpr (std::is_void_v<Result>) {
      run_guarded(method);
    } else {
      std::optional<Result> result;
      run_guarded([&] { result.emplace(method()); });
      return *std::move(result);
    }
  }

 private:
  template <class Event>
  const EventSlot<Event>& slot() const {
    return table_->events.template slot<Event>();
  }

  template <class Event>
  void deliver(Event& event) {
    if (core_.activity_clock.traces()) [[unlikely]]
      return raise_to_all(event, [] { throw; });
    const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::callbacks);
    slot<Event>().raise(*trainer_, event);
  }

  /// Every callback hears an end event even if one throws; the first exception is rethrown afterwards.
  template <class End>
  void raise_end(End& event) {
    detail::FirstError first(core_.args);
    raise_to_all(event, first);
    first.rethrow();
  }

  template <class Event>
  void raise_to_all(Event& event, detail::OnError on_error) {
    if (!hears<Event>()) return;
    const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::callbacks);
    const ActivityClock::Slice whole(core_.activity_clock, short_type_name<Event>());
    detail::TracedCallbacks traced{core_.activity_clock};
    slot<Event>().raise_to_all(*trainer_, event, on_error, traced);
  }

  template <class End>
  static void end_scope(EventSource& self) {
    try {
      End event{self.core_.context()};
      self.raise_end(event);
    } catch (...) {
      self.note_failed_cleanup();
    }
  }

  void add(const detail::ListedCallback& callback);
  void add(CallbackState state);
  void run_guarded(detail::FunctionRef<void()> method);
  std::vector<detail::HandledEvent> handlers_of(const std::vector<std::string_view>& names) const;

  /// Whether a callback's StopTraining becomes a request, because the other processes continue and need this
  /// one. True in a training with several processes, except where they learn of the stop immediately.
  bool goes_on() const {
    return core_.ranks.several() && core_.is_training() && !core_.ranks.tells_of_stop();
  }
  /// Called in a catch block.
  void stop_or_go_on(const StopTraining& stop) {
    if (!goes_on()) throw;
    core_.control.request_stop(stop.what());
  }

  void note_failed_cleanup();

  TrainerCore core_;
  AnyTrainer any_;
  std::optional<TrainerRef> trainer_;
  const TrainerTable* table_ = nullptr;
  std::vector<detail::ListedCallback> callbacks_;
  const RuntimeCallbacks* runtime_ = nullptr;  // among the callbacks, if any
  std::vector<CallbackState> states_;
  std::vector<void (*)(EventSource&)> open_;
  std::exception_ptr reported_;
};

/// Raises `DataLoaderCreated`, and limits the loader as its handlers decide. Unless a handler changes it, the
/// limit is that of ETUDE_LIMIT_BATCHES, or none for predictions.
void announce_loader(EventSource& events, DataLoader& loader, LoaderUse use);

}  // namespace etude::inline v0
