#pragma once

#include <torch/types.h>

#include <algorithm>
#include <boost/hana/for_each.hpp>
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
#include "etude/base/interrupt.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/dispatch/callback_handler.hpp"
#include "etude/dispatch/callback_state.hpp"
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

/// Throws `error` again, blaming these callbacks, if any.
[[noreturn]] void throw_written_loss(const std::vector<std::string>& writers, const DataError& error);
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
    boost::hana::for_each(handler_.callbacks(), [&]<class Callback>(Callback& callback) {
      if constexpr (std::same_as<Callback, RuntimeCallbacks>)
        std::ranges::move(callback.states(), std::back_inserter(result));
    });
    return result;
  }

  /// The types of all callbacks, including run-time ones.
  std::vector<std::string_view> callback_names() {
    std::vector<std::string_view> names;
    boost::hana::for_each(handler_.callbacks(), [&]<class Callback>(Callback& callback) {
      if constexpr (std::same_as<Callback, RuntimeCallbacks>)
        std::ranges::move(callback.names(), std::back_inserter(names));
      else
        names.push_back(short_type_name<Callback>());
    });
    return names;
  }

  /// Throws ArgumentError for a tracker in `report_to` that isn't among them.
  void check_trackers() {
    if (!core_.args.report_to.empty()) check_report_to(core_.args, callback_names());
  }

  /// Raises an event of the loop, and returns it with its writers' changes.
  template <class Event>
  Event raise(Event event) {
    const auto deliver = [&] {
      if constexpr (is_heard<Event>()) {
        if (core_.phase_clock.traces()) [[unlikely]]
          return raise_to_all(event, [] { throw; });
        const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::callbacks);
        if constexpr (is_heard_by_trainer<Event>()) detail::deliver(trainer(), event);
        handler_.call_event(event);
      } else {
        handler_.call_event(event);  // for its checks alone
      }
    };
    if (goes_on())
      stop_later(core_.control, deliver);
    else
      deliver();
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

  /// The callbacks that handle `Event`, the trainer itself included.
  template <class Event>
  std::vector<std::string> handlers_of(bool writers_only = false) {
    std::vector<std::string> names;
    if constexpr (is_heard_by_trainer<Event>())
      if (!writers_only || Writes<Derived, Event>) names.emplace_back(short_type_name<Derived>());
    boost::hana::for_each(handler_.callbacks(), [&]<class Callback>(Callback& callback) {
      if constexpr (std::same_as<Callback, RuntimeCallbacks>) {
        for (const auto& [name, writes] : callback.template handlers<Event>())
          if (!writers_only || writes) names.push_back(name);
      } else if (writers_only ? Writes<Callback, Event> : Handles<Callback, Event>) {
        names.emplace_back(short_type_name<Callback>());
      }
    });
    return names;
  }

  /// The loss after `BackwardBegin`. Throws DataError, naming the callbacks that may have changed it, unless
  /// it can be differentiated.
  const torch::Tensor& check_written(const torch::Tensor& loss) {
    if constexpr (is_written<BackwardBegin>()) {
      try {
        check_training_loss(loss);
      } catch (const DataError& error) {
        detail::throw_written_loss(handlers_of<BackwardBegin>(/*writers_only=*/true), error);
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
    open_.push_back([](EventSource& self) {
      self.attempt([&] {
        End event{self.core_.context()};
        self.raise_end(event);
      });
    });
  }

  template <class End>
  End leave() {
    return leave(End{core_.context()});
  }
  template <class End>
  End leave(End event) {
    open_.pop_back();
    if (goes_on())
      stop_later(core_.control, [&] { raise_end(event); });
    else
      raise_end(event);
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
  template <class Part>
  void attempt(const Part& part) {
    try {
      part();
    } catch (...) {
      if constexpr (JoinsOthers) core_.ranks.leave(std::current_exception());
      print_secondary(std::current_exception());
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
    boost::hana::for_each(handler_.callbacks(), [&]<class Callback>(Callback& callback) {
      if constexpr (detail::is_stateful<Callback>()) states_.emplace_back(callback);
    });
  }

  TrainerCore core_;
  Handler handler_;

 private:
  /// Every callback hears an end event even if one throws; the first exception is rethrown afterwards.
  template <class End>
  void raise_end(End& event) {
    ErrorOrigin first;
    const auto note = [&] {
      if (first.error) return print_secondary(std::current_exception());
      first = take_origin(std::current_exception());
    };
    raise_to_all(event, note);
    if (!first.error) return;
    const auto error = first.error;
    detail::last_origin() = std::move(first);
    std::rethrow_exception(error);
  }

  template <class Event, class OnError>
  void raise_to_all(Event& event, OnError on_error) {
    if constexpr (is_heard<Event>()) {
      const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::callbacks);
      const PhaseClock::Slice whole(core_.phase_clock, short_type_name<Event>());
      if constexpr (is_heard_by_trainer<Event>()) detail::deliver_to_all(trainer(), event, on_error);
      handler_.call_event_to_all(event, on_error, [&](std::string_view callback) {
        return PhaseClock::Slice(core_.phase_clock, callback);
      });
    } else {
      handler_.call_event_to_all(event, on_error);  // for its checks alone
    }
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

#ifndef ETUDE_COMPILED
#include "etude/loop/impl/event_source.ipp"
#endif
