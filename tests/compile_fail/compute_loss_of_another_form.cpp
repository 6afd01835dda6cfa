// EXPECT: compute_loss_of_another_form.cpp:.*: compute_loss is called as \(modules..., batch\)
// NEEDS: torch
#include "etude/trainer_options.hpp"

struct Trainer {
  explicit Trainer(etude::TrainerOptions options);
};

#ifdef ETUDE_MISTAKE
Trainer make() {
  return Trainer({.compute_loss = [](etude::Model& model, const etude::Batch& batch, double) {
    return model.forward(batch)[0].mean().item<double>();
  }});
}
#else
Trainer make() {
  return Trainer({.compute_loss = [](etude::Model& model, const etude::Batch& batch) {
    return model.forward(batch)[0].mean();
  }});
}
#endif
