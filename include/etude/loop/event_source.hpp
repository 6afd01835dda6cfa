#pragma once

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <boost/hana/unpack.hpp>
#include <concepts>
#include <cstddef>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/function_ref.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/dispatch/callback_handler.hpp"
#include "etude/dispatch/callback_state.hpp"
#include "etude/dispatch/describe.hpp"
#include "etude/dispatch/runtime_callbacks.hpp"
#include "etude/events.hpp"
#include "etude/libtorch/threads.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/loop/batch_limit.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/loss_check.hpp"
#include "etude/reflect/type_name.hpp"
#include "etude/trainer_control.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

namespace detail {
/// Reports an error on the terminal, including one that follows another on the way out.
void print_error(const TrainingArguments& args, const ErrorOrigin& origin, std::string_view what);
void print_secondary_error(const TrainingArguments& args, const std::exception_ptr& error);

/// Called where a callback's exception is caught. One type for all events, so that each is compiled once.
using OnError = FunctionRef<void()>;

struct Rethrow {
  [[noreturn]] void operator()() const { throw; }
};

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

// Functions of one callback, which all trainers that have it share.

template <class Callback>
void add_state(Callback& callback, std::vector<CallbackState>& states) {
  if constexpr (is_stateful<Callback>()) states.emplace_back(callback);
}

template <class Callback>
void add_runtime_states(Callback& callback, std::vector<CallbackState>& states) {
  if constexpr (std::same_as<Callback, RuntimeCallbacks>)
    std::ranges::move(callback.states(), std::back_inserter(states));
}

template <class Callback>
void add_names(Callback& callback, std::vector<std::string_view>& names) {
  if constexpr (std::same_as<Callback, RuntimeCallbacks>)
    std::ranges::move(callback.names(), std::back_inserter(names));
  else
    names.push_back(short_type_name<Callback>());
}

/// Writes each callback's time to the trace.
struct TracedCallbacks {
  PhaseClock& clock;
  PhaseClock::Slice operator()(std::string_view callback) const { return PhaseClock::Slice(clock, callback); }
};

/// Throws `error` again, blaming those callbacks that may have changed the loss, if any.
[[noreturn]] void throw_written_loss(const std::vector<HandledEvent>& handled, const DataError& error);
}  // namespace detail

/// Raises a trainer's events, and makes every exit the same: whatever began gets its end event, every
/// callback hears of an error, and the exception leaves as it was thrown. A `Derived` with an `on` for an
/// event is called before its callbacks. It is a private base of `Derived`; the loops work with it.
/// `JoinsOthers`: there may be several processes.
template <class Derived, class Handler, bool JoinsOthers = true>
class EventSource {
 public:
  /// Whether there may be several processes.
  static constexpr bool joins_others = JoinsOthers;

  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;

  // C-style cast: the base is private, so static_cast is ill-formed.
  Derived& trainer() { return (Derived&)*this; }
  TrainerCore& core() { return core_; }
  Handler& handler() { return handler_; }

  /// The states of all callbacks that have one, in order.
  std::vector<CallbackState> states() {
    auto result = states_;
    boost::hana::unpack(handler_.callbacks(),
                        [&](auto&... each) { (detail::add_runtime_states(each, result), ...); });
    return result;
  }

  /// The types of all callbacks, including run-time ones.
  std::vector<std::string_view> callback_names() {
    std::vector<std::string_view> names;
    boost::hana::unpack(handler_.callbacks(), [&](auto&... each) { (detail::add_names(each, names), ...); });
    return names;
  }

  /// Throws ArgumentError for a tracker in `report_to` that isn't among them.
  void check_trackers() {
    if (!core_.args.report_to.empty()) check_report_to(core_.args, callback_names());
  }

  /// Raises an event of the loop, and returns it with its writers' changes.
  template <class Event>
  Event raise(Event event) {
    static_assert(Handler::template may_raise<Event>());
    if constexpr (is_heard<Event>()) {
      if constexpr (JoinsOthers) {
        try {
          deliver(event);
        } catch (const StopTraining& stop) {
          stop_or_go_on(stop);
        }
      } else {
        deliver(event);
      }
    }
    return event;
  }

  /// Whether this process works with others.
  bool has_others() const {
    if constexpr (JoinsOthers)
      return core_.ranks.several();
    else
      return false;
  }

  /// Whether the trainer itself handles `Event`.
  template <class Event>
  static consteval bool is_heard_by_trainer() {
    if constexpr (detail::has_name_on<Derived>()) {
      static_assert(detail::check_event<Event, Derived>());
      return Handles<Derived, Event>;
    } else {
      return false;
    }
  }

  /// Whether anything handles `Event`.
  template <class Event>
  static consteval bool is_heard() {
    return is_heard_by_trainer<Event>() || Handler::template handles<Event>;
  }

  /// Whether a handler may change `Event`.
  template <class Event>
  static consteval bool is_written() {
    if constexpr (is_heard_by_trainer<Event>()) {
      return Writes<Derived, Event> || Handler::template writes<Event>;
    } else {
      return Handler::template writes<Event>;
    }
  }

  /// Those of `Events` that are handled, and by which callbacks, the trainer itself included.
  template <class... Events>
  std::vector<detail::HandledEvent> handlers_of(events<Events...> which) {
    static constexpr std::array own{own_handling<Events>()...};
    return boost::hana::unpack(handler_.callbacks(), [&](const auto&... each) {
      const std::array callbacks{detail::CallbackHandling{short_type_name<Derived>(), own.data()},
                                 detail::handling_of(each, which)...};
      return detail::handled_events(detail::known_events(which), callbacks);
    });
  }

  /// The loss after `BackwardBegin`. Throws DataError, naming the callbacks that may have changed it, unless
  /// it can be differentiated.
  const torch::Tensor& check_written(const torch::Tensor& loss) {
    if constexpr (is_written<BackwardBegin>()) {
      try {
        check_training_loss(loss);
      } catch (const DataError& error) {
        detail::throw_written_loss(handlers_of(events<BackwardBegin>{}), error);
      }
    }
    return loss;
  }

  /// Whether a callback's StopTraining is only a request, because the other processes go on and need this
  /// one: in a training, except where they are told of it at once.
  bool goes_on() const {
    if constexpr (JoinsOthers)
      return core_.ranks.several() && core_.training && !core_.ranks.tells_of_stop();
    else
      return false;
  }

  /// Begins a scope that ends with `End`, however it ends.
  template <class End>
  void open() {
    open_.push_back(&end_scope<End>);
  }

  template <class End>
  End leave() {
    return leave(End{core_.context()});
  }
  template <class End>
  End leave(End event) {
    open_.pop_back();
    if constexpr (JoinsOthers && is_heard<End>()) {
      try {
        raise_end(event);
      } catch (const StopTraining& stop) {
        stop_or_go_on(stop);
      }
    } else {
      raise_end(event);
    }
    return event;
  }

  /// The number of open scopes.
  std::size_t depth() const { return open_.size(); }

  /// Closes the scopes opened since `depth`, the last one first.
  void close_to(std::size_t depth) {
    while (open_.size() > depth) {
      const auto close = open_.back();
      open_.pop_back();
      close(*this);
    }
  }

  /// Runs cleanup after an error: exceptions from it are reported, not thrown.
  void attempt(detail::FunctionRef<void()> part) {
    try {
      part();
    } catch (...) {
      note_failed_cleanup();
    }
  }

  /// Reports an error once: to every callback, and on the terminal.
  void report(const std::exception_ptr& error) {
    if (reported_ == error) return;
    reported_ = error;
    leave_out_frames(error);
    const auto origin = take_origin(error);
    const auto what = message_of(error);
    if (!origin.callback.empty()) detail::print_error(core_.args, origin, what);
    TrainError event{core_.context(), error, what, origin.callback, origin.event};
    raise_to_all(event, [&] { print_secondary(std::current_exception()); });
  }

  /// Runs a method of the trainer with this error handling.
  template <class Method>
  auto guarded(Method method) {
    const auto outside = depth();
    const InterruptionScope whole(false);
    std::optional<ThreadGuard> threads;
    std::optional<OwnGenerators::Use> generators;
    core_.is_quiet ? static_cast<void>(generators.emplace(core_.own_generators))
                   : static_cast<void>(threads.emplace());
    if constexpr (JoinsOthers)
      if (outside == 0) core_.ranks.check();
    try {
      return method();
    } catch (const Interrupted&) {
      close_to(outside);
      throw;
    } catch (const StopTraining&) {
      // Inside a training this is a request, which the training handles.
      if (!core_.training || outside == 0) report(std::current_exception());
      close_to(outside);
      throw;
    } catch (...) {
      if constexpr (JoinsOthers)
        if (outside == 0) core_.ranks.leave(std::current_exception());
      report(std::current_exception());
      close_to(outside);
      throw;
    }
  }

 protected:
  explicit EventSource(Handler handler) : handler_(std::move(handler)) {
    boost::hana::unpack(handler_.callbacks(),
                        [&](auto&... each) { (detail::add_state(each, states_), ...); });
  }

  TrainerCore core_;
  Handler handler_;

 private:
  template <class Event>
  void deliver(Event& event) {
    if (core_.phase_clock.traces()) [[unlikely]]
      return raise_to_all(event, detail::Rethrow());
    const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::callbacks);
    if constexpr (is_heard_by_trainer<Event>()) detail::deliver(trainer(), event);
    handler_.call_event(event);
  }

  /// Every callback hears an end event even if one throws; the first exception is rethrown afterwards.
  template <class End>
  void raise_end(End& event) {
    static_assert(Handler::template may_raise<End>());
    if constexpr (is_heard<End>()) {
      detail::FirstError first(core_.args);
      raise_to_all(event, first);
      first.rethrow();
    }
  }

  template <class Event>
  void raise_to_all(Event& event, detail::OnError on_error) {
    if constexpr (is_heard<Event>()) {
      const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::callbacks);
      const PhaseClock::Slice whole(core_.phase_clock, short_type_name<Event>());
      detail::TracedCallbacks traced{core_.phase_clock};
      if constexpr (is_heard_by_trainer<Event>()) detail::deliver_to_all(trainer(), event, on_error, traced);
      handler_.call_event_to_all(event, on_error, traced);
    }
  }

  template <class Event>
  static consteval detail::Handling own_handling() {
    if constexpr (is_heard_by_trainer<Event>())
      return detail::handling<Derived, Event>();
    else
      return detail::Handling::none;
  }

  /// In a catch block.
  void stop_or_go_on(const StopTraining& stop) {
    if (!goes_on()) throw;
    core_.control.request_stop(stop.what());
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

  void note_failed_cleanup() {
    if constexpr (JoinsOthers) core_.ranks.leave(std::current_exception());
    print_secondary(std::current_exception());
  }

  void print_secondary(const std::exception_ptr& error) { detail::print_secondary_error(core_.args, error); }

  std::vector<CallbackState> states_;
  std::vector<void (*)(EventSource&)> open_;
  std::exception_ptr reported_;
};

/// Raises `DataLoaderCreated`, and limits the loader as its handlers decide, or else by the environment,
/// which doesn't limit predictions.
template <class Events>
void announce_loader(Events& events, DataLoader& loader, LoaderUse use) {
  auto& core = events.core();
  auto limit = use == LoaderUse::predict ? std::nullopt : batch_limit_of_environment();
  limit =
      events.raise(DataLoaderCreated{core.context(), loader, use, limit, core.is_intermediate()}).max_batches;
  if (limit) loader.limit_batches(*limit);
}

}  // namespace etude::inline v0
