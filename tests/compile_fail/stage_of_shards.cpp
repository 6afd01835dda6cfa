// EXPECT: etude: ShardedDataParallel<1> divides
// NEEDS: torch
#include "etude/trainer.hpp"

#ifdef ETUDE_MISTAKE
using Mine = etude::Trainer<etude::ShardedDataParallel<4>>;
#else
using Mine = etude::Trainer<etude::ShardedDataParallel<2>>;
#endif

void train(etude::TrainerOptions options) { Mine(std::move(options)).train(); }
