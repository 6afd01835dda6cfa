// EXPECT: etude: program_state takes variables that outlive the trainer, not temporaries
// NEEDS: torch
#include "etude/trainer_options.hpp"

struct Replay {
  ETUDE_STRUCT(Replay, (torch::Tensor, states, "inputs"), (std::int64_t, added, "so far"));
};

etude::ProgramState state_of(Replay& replay) {
#ifdef ETUDE_MISTAKE
  return {{"replay", replay}, {"count", replay.added + 1}};
#else
  return {{"replay", replay}, {"count", replay.added}};
#endif
}
