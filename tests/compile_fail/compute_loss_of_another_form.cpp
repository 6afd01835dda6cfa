// EXPECT: etude: compute_loss is called as \(etude::Model& model, const etude::Batch& batch
// NEEDS: torch
#include "etude/trainer_options.hpp"

struct Trainer {
  explicit Trainer(etude::TrainerOptions options);
};

#ifdef ETUDE_MISTAKE
Trainer make() {
  return Trainer({.compute_loss = [](etude::Model& model, const etude::Batch& batch) {
    return torch::mse_loss(model.forward(batch)[0], batch.inputs);
  }});
}
#else
Trainer make() {
  return Trainer({.compute_loss = [](etude::Model& model, const etude::Batch& batch, std::optional<double>) {
    const auto outputs = model.forward(batch);
    return etude::LossOutput{torch::mse_loss(outputs[0], batch.inputs), outputs};
  }});
}
#endif
