// EXPECT: state_is_never_saved_so_declare_state_and_load_state_public_as<Counter, nlohmann
#include "etude/dispatch/runtime_callbacks.hpp"

struct StepEnd {};

struct Counter {
  int steps = 0;
  void on(const StepEnd&) { ++steps; }
  nlohmann::json state() const { return {{"steps", steps}}; }
#ifndef ETUDE_MISTAKE
  void load_state(const nlohmann::json& saved) { steps = saved.at("steps"); }
#endif
};

/// Has a method of that name that isn't about saving.
struct Named {
  void on(const StepEnd&) {}
  std::string state() const { return "ready"; }
};

void add(etude::RuntimeCallbacks& callbacks) {
  callbacks.add(etude::events<StepEnd>(), Counter{});
  callbacks.add(etude::events<StepEnd>(), Named{});
}
