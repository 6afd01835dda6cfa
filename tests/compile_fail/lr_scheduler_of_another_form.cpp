// EXPECT: etude: lr_scheduler is a function of the step \(std::int64_t\) that returns a factor
// NEEDS: torch
#include "etude/trainer_options.hpp"

struct Trainer {
  explicit Trainer(etude::TrainerOptions options);
};

#ifdef ETUDE_MISTAKE
Trainer make() {
  return Trainer({.lr_scheduler = [](std::int64_t, std::int64_t) { return 1.0; }});
}
#else
Trainer make() {
  return Trainer({.lr_scheduler = [](auto step) { return 1.0 / static_cast<double>(step + 1); }});
}
#endif
