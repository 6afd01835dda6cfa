// EXPECT: deleted function .Mine::Mine\(etude::TrainerOptions.*from etude::TrainerBase<Other>
// EXPECT-CLANG: base class 'etude::TrainerBase<Other>' has private destructor
// NEEDS: torch
#include "etude/trainer.hpp"

struct Other : etude::TrainerBase<Other> {
  using TrainerBase::TrainerBase;
};

#ifdef ETUDE_MISTAKE
struct Mine : etude::TrainerBase<Other> {
#else
struct Mine : etude::TrainerBase<Mine> {
#endif
  using TrainerBase::TrainerBase;
};

void train(etude::TrainerOptions options) { Mine(std::move(options)).train(); }
