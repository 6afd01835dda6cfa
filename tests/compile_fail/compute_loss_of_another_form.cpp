// EXPECT: option_is_a_function_so_declare_yours_as<etude::LossOutput ?\(etude::Model ?&, const etude::Batch
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
