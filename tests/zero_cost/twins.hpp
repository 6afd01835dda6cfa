#pragma once

#include "etude/dispatch/callback_handler.hpp"
#include "etude/dispatch/event_table.hpp"

/// Callbacks and events of pairs of functions that do the same, once through the handler (`_etude`) and once
/// with its calls written out (`_hand`).

struct Step {
  int loss;
  int& request;
};
struct Unheard {
  int loss;
};
struct Verify {
  const int* values;
  int size;
};

/// Defined in another file, so the compiler must call it and assume that it may throw.
void observe(int value);

struct Sum {
  int total = 0;
  void on(const Step& e) { total += e.loss; }
};
struct Count {
  int steps = 0;
  int verified = 0;
  void on(const Step&) { ++steps; }
  void on(const Verify& e) { verified += e.size; }
};
struct Largest {
  int loss = 0;
  void on(const Step& e) {
    if (e.loss > loss) loss = e.loss;
  }
};
struct Ask {
  int limit = 0;
  void on(const Step& e) {
    if (e.loss > limit) e.request = 1;
  }
};
struct Observe {
  void on(const Step& e) { observe(e.loss); }
};
struct ObserveToo : Observe {
  using Observe::on;
};
struct ObserveLast : Observe {
  using Observe::on;
};
struct Double {
  void on(Step& e) { e.loss *= 2; }
};
struct Idle {
  int first = 0;
  void on(const Verify& e) {
    if (e.size > 0) first = e.values[0];
  }
};
