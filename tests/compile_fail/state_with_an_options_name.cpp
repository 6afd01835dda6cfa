// EXPECT: an_option_and_a_member_of_state_have_one_name_so_rename_one<Counter>
#include "etude/dispatch/callback_state.hpp"

struct Counter {
  ETUDE_STRUCT(Counter, (int, every, "steps between two prints", 10));
  struct State {
#ifdef ETUDE_MISTAKE
    ETUDE_STRUCT(State, (int, every, "what it has counted", 0));
#else
    ETUDE_STRUCT(State, (int, count, "what it has counted", 0));
#endif
  };
  State state = {};
};

etude::CallbackState state_of(Counter& counter) { return etude::CallbackState(counter); }
