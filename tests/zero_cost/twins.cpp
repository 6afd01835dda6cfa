#include "twins.hpp"

using Counting = etude::CallbackHandler<Sum, Count, Idle, Largest, Ask>;
struct CountingByHand {
  Sum sum;
  Count count;
  Idle idle;
  Largest largest;
  Ask ask;
};
using Calling = etude::CallbackHandler<Sum, Observe, Largest, ObserveToo, ObserveLast, Count>;
struct CallingByHand {
  Sum sum;
  [[no_unique_address]] Observe observe;
  Largest largest;
  [[no_unique_address]] ObserveToo observe_too;
  [[no_unique_address]] ObserveLast observe_last;
  Count count;
};
using Writing = etude::CallbackHandler<Double, Sum, Ask>;
struct WritingByHand {
  [[no_unique_address]] Double twice;
  Sum sum;
  Ask ask;
};
static_assert(sizeof(Counting) == sizeof(CountingByHand) && sizeof(Calling) == sizeof(CallingByHand) &&
              sizeof(Writing) == sizeof(WritingByHand));

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

void event_unhandled(Calling& callbacks, int loss) { callbacks.call_event(Unheard{loss}); }
void nobody_unhandled(etude::CallbackHandler<>& callbacks, int loss) { callbacks.call_event(Unheard{loss}); }
}
