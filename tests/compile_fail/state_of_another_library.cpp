// EXPECT: state_is_never_saved_so_declare_state_and_load_state_public_as<Counter, .* const, void ?\(const
#include "etude/dispatch/runtime_callbacks.hpp"

struct StepEnd {};

struct Counter {
  void on(const StepEnd&) { ++steps; }
#ifdef ETUDE_MISTAKE
  nlohmann::json state_dict() const { return {{"steps", steps}}; }
  void load_state_dict(const nlohmann::json& state) { steps = state.at("steps"); }
#else
  nlohmann::json state() const { return {{"steps", steps}}; }
  void load_state(const nlohmann::json& state) { steps = state.at("steps"); }
#endif
  int steps = 0;
};

void add(etude::RuntimeCallbacks& callbacks) { callbacks.add(etude::events<StepEnd>{}, Counter{}); }
