// EXPECT: (deleted function|TrainOptions::Resume)
// NEEDS: torch
#include "etude/trainer_options.hpp"

#ifdef ETUDE_MISTAKE
etude::TrainOptions options() { return {.resume_from_checkpoint = 300}; }
#else
etude::TrainOptions options() { return {.resume_from_checkpoint = "checkpoint-300"}; }
#endif
