// EXPECT: trainer_derives_privately_so_write_public<Mine, etude::TrainerBase<Mine> ?>
// NEEDS: torch
#include "etude/trainer.hpp"

#ifdef ETUDE_MISTAKE
class Mine : etude::TrainerBase<Mine> {
#else
class Mine : public etude::TrainerBase<Mine> {
#endif
 public:
  using TrainerBase::TrainerBase;
};

void make(etude::TrainerOptions options) { Mine trainer(std::move(options)); }
