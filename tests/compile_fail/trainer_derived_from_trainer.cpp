// EXPECT: cannot derive from .final. base .etude::Trainer<>. in derived type .Mine
// EXPECT-CLANG: base 'Trainer' is marked 'final'
// NEEDS: torch
#include "etude/trainer.hpp"

#ifdef ETUDE_MISTAKE
struct Mine : etude::Trainer<> {
  using Trainer::Trainer;
#else
struct Mine : etude::TrainerBase<Mine> {
  using TrainerBase::TrainerBase;
#endif
  double floating_point_ops(const etude::Batch&) { return 1; }
};

void train(etude::TrainerOptions options) { Mine(std::move(options)).train(); }
