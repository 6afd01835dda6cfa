// count etude|plain: raises 100000 events through the handler, or with its calls written out. The arguments
// have the same length, so that the program's start takes equally many instructions.
#include <cstdlib>
#include <string_view>

#include <boost/hana/at.hpp>

#include "twins.hpp"

constexpr int events = 100000;
static int observed = 0;

[[gnu::noinline]] void observe(int value) { observed += value; }

/// Makes the compiler assume that the callbacks are read after each event.
template <class Callbacks>
static void look_at(Callbacks& callbacks) {
  asm volatile("" : : "r"(&callbacks) : "memory");
}

[[gnu::noinline]] static int through_the_handler() {
  etude::CallbackHandler<Sum, Observe, Idle, Largest, Count> callbacks{{}, {}, {}, {}, {}};
  int request = 0;
  for (int i = 0; i < events; ++i) {
    callbacks.call_event(Step{i % 7, request});
    callbacks.call_event(Unheard{i});
    look_at(callbacks);
  }
  return boost::hana::at_c<0>(callbacks.callbacks()).total +
         boost::hana::at_c<4>(callbacks.callbacks()).steps;
}

[[gnu::noinline]] static int by_hand() {
  struct {
    Sum sum;
    [[no_unique_address]] Observe observe;
    Idle idle;
    Largest largest;
    Count count;
  } callbacks;
  int request = 0;
  for (int i = 0; i < events; ++i) {
    const Step e{i % 7, request};
    callbacks.sum.on(e);
    callbacks.observe.on(e);
    callbacks.largest.on(e);
    callbacks.count.on(e);
    look_at(callbacks);
  }
  return callbacks.sum.total + callbacks.count.steps;
}

int main(int argc, char** argv) {
  if (argc != 2) return EXIT_FAILURE;
  const int result = argv[1] == std::string_view("etude") ? through_the_handler() : by_hand();
  // Checks that the work was done: the sum of i % 7, which is also observed, and one count per event.
  return result == observed + events && observed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
