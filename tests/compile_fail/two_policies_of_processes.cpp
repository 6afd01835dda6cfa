// EXPECT: only_one_policy_may_say_how_processes_join<etude::DistributedDataParallel, .*Sharded
// NEEDS: torch
#include "etude/trainer.hpp"

#ifdef ETUDE_MISTAKE
using Mine = etude::Trainer<etude::DistributedDataParallel, etude::ShardedDataParallel<1>>;
#else
using Mine = etude::Trainer<etude::ShardedDataParallel<1>>;
#endif

void train(etude::TrainerOptions options) { Mine(std::move(options)).train(); }
