#pragma once

#include <concepts>

#include "etude/base/function_ref.hpp"
#include "etude/callback.hpp"

namespace etude::inline v0 {

/// A reference to a trainer of any type, for the functions in its tables.
class TrainerRef {
 public:
  template <class Trainer>
    requires(!std::same_as<Trainer, TrainerRef>)
  explicit TrainerRef(Trainer& trainer) : trainer_(&trainer) {}

  /// The trainer, which must have this type.
  template <class Trainer>
  Trainer& as() const {
    return *static_cast<Trainer*>(trainer_);
  }

 private:
  void* trainer_;
};

namespace detail {
/// Called where a callback's exception is caught. It has the same type for all events, so that each handler
/// is compiled only once.
using OnError = FunctionRef<void()>;
struct TracedCallbacks;
}  // namespace detail

/// How a trainer raises an event.
template <class Event>
struct EventSlot {
  /// Calls each handler, in order; null if there is none.
  void (*raise)(TrainerRef, Event&) = nullptr;
  /// Calls each handler even if some throw, and `on_error` inside the catch block of each exception.
  void (*raise_to_all)(TrainerRef, Event&, detail::OnError, detail::TracedCallbacks&) = nullptr;
  /// Whether a handler may change the event, apart from callbacks added at run time.
  bool is_written = false;
};

/// A slot for each event that the loop raises. The loop is compiled once for all trainers, and needs nothing
/// else of a trainer's type.
template <class... Events>
struct EventTableOf : EventSlot<Events>... {
  template <class Event>
  constexpr const EventSlot<Event>& slot() const {
    return *this;
  }
};

namespace detail {

/// Makes the table of an `Owner`. For each event that it `hears`, the owner has `is_written`,
/// `deliver(event)` and `deliver_to_all(event, on_error, traced)`.
struct EventTables {
  template <class Owner, class Event>
  static void raise(TrainerRef owner, Event& event) {
    owner.as<Owner>().deliver(event);
  }
  template <class Owner, class Event>
  static void raise_to_all(TrainerRef owner, Event& event, OnError on_error, TracedCallbacks& traced) {
    owner.as<Owner>().deliver_to_all(event, on_error, traced);
  }

  template <class Owner, class Event>
  static consteval EventSlot<Event> slot() {
    if constexpr (Owner::template hears<Event>())
      return {raise<Owner, Event>, raise_to_all<Owner, Event>, Owner::template is_written<Event>()};
    else
      return {};
  }

  template <class Owner, class... Events>
  static consteval EventTableOf<Events...> make(events<Events...>) {
    return {slot<Owner, Events>()...};
  }
};

template <class... Events>
EventTableOf<Events...> table_of_all(events<Events...>);

}  // namespace detail

}  // namespace etude::inline v0
