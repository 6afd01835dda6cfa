// EXPECT: state_key_must_be_a_static_constexpr_std_string_view<Counter>
#include "etude/dispatch/callback_state.hpp"

struct Counter {
#ifdef ETUDE_MISTAKE
  std::string_view state_key = "steps";
#else
  static constexpr std::string_view state_key = "steps";
#endif
  nlohmann::ordered_json state() const { return {{"steps", steps}}; }
  void load_state(const nlohmann::ordered_json& state) { steps = state.at("steps"); }
  int steps = 0;
};

etude::CallbackState state_of(Counter& counter) { return etude::CallbackState(counter); }
