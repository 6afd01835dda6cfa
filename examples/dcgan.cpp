/// A generative adversarial network learns to draw digits: its training_step makes the steps of two
/// optimizers. `loops/dcgan.cpp` is the loop that it replaces, with the same losses.

#include "data/digits.hpp"

etude::Modules gan() {
  return {
      {"generator",
       torch::nn::Sequential(
           torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(16, 32, 4).bias(false)),
           torch::nn::BatchNorm2d(32), torch::nn::ReLU(),
           torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(32, 1, 4).stride(2).padding(1)),
           torch::nn::Sigmoid())},
      {"discriminator",
       torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 32, 4).stride(2).padding(1)),
                             torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)),
                             torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 1, 4)), torch::nn::Flatten())}};
}

torch::Tensor noise(std::int64_t count, torch::Device device) {
  return torch::randn({count, 16, 1, 1}, torch::TensorOptions(device));
}

/// Prints images [N, 1, 8, 8] side by side.
void draw(const torch::Tensor& images) {
  for (std::int64_t row = 0; row < 8; ++row, etude::print("\n"))
    for (std::int64_t i = 0; i < images.size(0); ++i, etude::print("  "))
      for (std::int64_t column = 0; column < 8; ++column) {
        const auto shade = static_cast<std::size_t>(images[i][0][row][column].item<double>() * 4.99);
        etude::print("{0}{0}", " .:+#"[shade]);
      }
}

struct DrawAtEnd {
  void on(const etude::TrainEnd& e) {
    const torch::NoGradGuard no_grad;
    e.model.train(false);
    draw(e.model.forward({noise(6, e.model.parameters().front().device())})[0].cpu());
  }
};

// [training_step]
struct GanTrainer final : etude::TrainerBase<GanTrainer, DrawAtEnd> {
  using TrainerBase::TrainerBase;
  static constexpr bool automatic_optimization = false;

  torch::Tensor training_step(etude::Batch& batch) {
    auto& generator = model().as<torch::nn::Sequential>("generator");
    auto& discriminator = model().as<torch::nn::Sequential>("discriminator");
    const auto loss_of = [&](const torch::Tensor& images, double label) {
      const auto scores = discriminator.forward(images);
      return torch::binary_cross_entropy_with_logits(scores, torch::full_like(scores, label));
    };
    const auto drawn = generator.forward(noise(batch.size, batch.inputs[0].device()));

    const auto discriminator_loss = loss_of(batch.inputs, 0.9) + loss_of(drawn.detach(), 0);
    optimizer("discriminator").backward(discriminator_loss);
    optimizer("discriminator").step();

    const auto generator_loss = loss_of(drawn, 1);
    optimizer("generator").backward(generator_loss);
    optimizer("generator").step();

    log("discriminator_loss", discriminator_loss.detach());
    log("generator_loss", generator_loss.detach());
    return (discriminator_loss + generator_loss).detach();
  }
};
// [/training_step]

void train(const etude::TrainingArguments& args) {
  GanTrainer trainer({.model_init = gan,
                      .args = args,
                      .train_dataset = digits::read().first,
                      .optimizers = {{"generator", {}}, {"discriminator", {.learning_rate = 5e-4}}}});
  trainer.train();
}

int main(int argc, char** argv) {
  auto args = digits::arguments();
  args.output_dir = "dcgan_output";
  args.num_train_epochs = 10;
  args.learning_rate = 1e-3;
  args.optim = etude::OptimizerNames::adam;
  args.adam_beta1 = 0.5;
  args.lr_scheduler_type = etude::SchedulerType::constant;
  args.max_grad_norm = 0;
  args.eval_strategy = etude::IntervalStrategy::no;
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  args.log_lines = {
      "epoch {epoch:.0f} discriminator_loss {discriminator_loss:.6f} generator_loss {generator_loss:.6f}"};
  return etude::run(argc, argv, args, train);
}
