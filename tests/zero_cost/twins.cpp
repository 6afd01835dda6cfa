#include "twins.hpp"

using Counting = etude::CallbackHandler<Sum, Count, Idle, Largest, Ask>;
struct CountingByHand {
  Sum sum;
  Count count;
  Idle idle;
  Largest largest;
  Ask ask;

  [[gnu::always_inline]] void deliver(const Step& e) {
    sum.on(e);
    count.on(e);
    largest.on(e);
    ask.on(e);
  }
};
using Calling = etude::CallbackHandler<Sum, Observe, Largest, ObserveToo, ObserveLast, Count>;
struct CallingByHand {
  Sum sum;
  [[no_unique_address]] Observe observe;
  Largest largest;
  [[no_unique_address]] ObserveToo observe_too;
  [[no_unique_address]] ObserveLast observe_last;
  Count count;

  [[gnu::always_inline]] void deliver(const Step& e) {
    sum.on(e);
    observe.on(e);
    largest.on(e);
    observe_too.on(e);
    observe_last.on(e);
    count.on(e);
  }
};
using Writing = etude::CallbackHandler<Double, Sum, Ask>;
struct WritingByHand {
  [[no_unique_address]] Double twice;
  Sum sum;
  Ask ask;
};
static_assert(sizeof(Counting) == sizeof(CountingByHand) && sizeof(Calling) == sizeof(CallingByHand) &&
              sizeof(Writing) == sizeof(WritingByHand));

/// Callbacks behind an event table, like a trainer's.
template <class Handler>
struct Owner {
  Handler callbacks;

  template <class Event>
  static consteval bool hears() {
    return Handler::template handles<Event>;
  }
  template <class Event>
  static consteval bool is_written() {
    return Handler::template writes<Event>;
  }
  template <class Event>
  [[gnu::always_inline]] void deliver(Event& event) {
    callbacks.call_event(event);
  }
  template <class Event>
  void deliver_to_all(Event& event, etude::detail::OnError on_error, etude::detail::TracedCallbacks&) {
    callbacks.call_event_to_all(event, on_error);
  }
};
template <class Handler>
constexpr auto table =
    etude::detail::EventTables::make<Owner<Handler>>(etude::events<Step, Unheard, Verify>{});
template <class Handler, class Event>
constexpr auto slot = table<Handler>.template slot<Event>();
static_assert(slot<Counting, Step>.raise && !slot<Counting, Unheard>.raise && slot<Counting, Verify>.raise);
static_assert(!slot<Counting, Step>.is_written && slot<Writing, Step>.is_written);

constexpr etude::EventSlot<Step> counting_slot{
    [](etude::TrainerRef owner, Step& e) { owner.as<CountingByHand>().deliver(e); }};
constexpr etude::EventSlot<Step> calling_slot{
    [](etude::TrainerRef owner, Step& e) { owner.as<CallingByHand>().deliver(e); }};

extern "C" {

void counting_etude(Counting& callbacks, int loss, int& request) {
  callbacks.call_event(Step{loss, request});
}
void counting_hand(CountingByHand& callbacks, int loss, int& request) {
  const Step e{loss, request};
  callbacks.sum.on(e);
  callbacks.count.on(e);
  callbacks.largest.on(e);
  callbacks.ask.on(e);
}

void own_event_etude(Counting& callbacks, const int* values, int size) {
  callbacks.call_event(Verify{values, size});
}
void own_event_hand(CountingByHand& callbacks, const int* values, int size) {
  const Verify e{values, size};
  callbacks.count.on(e);
  callbacks.idle.on(e);
}

void calling_etude(Calling& callbacks, int loss, int& request) { callbacks.call_event(Step{loss, request}); }
void calling_hand(CallingByHand& callbacks, int loss, int& request) {
  const Step e{loss, request};
  callbacks.sum.on(e);
  callbacks.observe.on(e);
  callbacks.largest.on(e);
  callbacks.observe_too.on(e);
  callbacks.observe_last.on(e);
  callbacks.count.on(e);
}

int writing_etude(Writing& callbacks, int loss, int& request) {
  Step e{loss, request};
  callbacks.call_event(e);
  return e.loss;
}
int writing_hand(WritingByHand& callbacks, int loss, int& request) {
  Step e{loss, request};
  callbacks.twice.on(e);
  callbacks.sum.on(e);
  callbacks.ask.on(e);
  return e.loss;
}

// The bodies of slots, inlined.
[[gnu::flatten]] void slot_etude(etude::TrainerRef owner, Step& e) { slot<Counting, Step>.raise(owner, e); }
[[gnu::flatten]] void slot_hand(etude::TrainerRef owner, Step& e) { counting_slot.raise(owner, e); }
[[gnu::flatten]] void calling_slot_etude(etude::TrainerRef owner, Step& e) {
  slot<Calling, Step>.raise(owner, e);
}
[[gnu::flatten]] void calling_slot_hand(etude::TrainerRef owner, Step& e) { calling_slot.raise(owner, e); }

void event_unhandled(Calling& callbacks, int loss) { callbacks.call_event(Unheard{loss}); }
void nobody_unhandled(etude::CallbackHandler<>& callbacks, int loss) { callbacks.call_event(Unheard{loss}); }
}
