/// A variational autoencoder learns to draw digits, logs the parts of its loss, and draws some at each
/// evaluation: `vae_output/samples/step-STEP/eval_digits.png`. `loops/vae.cpp` is the loop that it replaces,
/// with the same losses.

#include <etude/callbacks/samples_to_folder.hpp>

#include "data/digits.hpp"

struct VaeImpl : torch::nn::Module {
  /// Images [N, 1, 8, 8] to their reconstruction, and the mean and log variance of their codes.
  etude::Tensors forward(torch::Tensor images) {
    const auto hidden = torch::relu(encode(images.flatten(1)));
    const auto mean = to_mean(hidden), log_variance = to_log_variance(hidden);
    const auto code = mean + torch::randn_like(mean) * torch::exp(log_variance / 2);
    return {{"images", draw(code)}, {"mean", mean}, {"log_variance", log_variance}};
  }
  torch::Tensor draw(torch::Tensor code) {
    return torch::sigmoid(to_pixels(torch::relu(decode(code)))).reshape({-1, 1, 8, 8});
  }

  torch::nn::Linear encode = register_module("encode", torch::nn::Linear(64, 128));
  torch::nn::Linear to_mean = register_module("to_mean", torch::nn::Linear(128, 8));
  torch::nn::Linear to_log_variance = register_module("to_log_variance", torch::nn::Linear(128, 8));
  torch::nn::Linear decode = register_module("decode", torch::nn::Linear(8, 128));
  torch::nn::Linear to_pixels = register_module("to_pixels", torch::nn::Linear(128, 64));
};
TORCH_MODULE(Vae);

etude::LossOutput compute_loss(etude::Model& model, const etude::Batch& batch) {
  const auto output = model.forward(batch);
  const auto mean = output["mean"], log_variance = output["log_variance"];
  const auto count = static_cast<double>(batch.size);
  const auto reconstruction =
      torch::binary_cross_entropy(output["images"], batch.inputs[0], {}, at::Reduction::Sum) / count;
  const auto kl = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum() / count;
  return {.loss = reconstruction + kl,
          .outputs = output,
          .logs = {{"reconstruction", reconstruction}, {"kl", kl}}};
}

/// Four rows of digits from random codes, which are the same each time.
std::vector<etude::Sample> draw_digits(const etude::Evaluate& e) {
  const auto codes = torch::randn({16, 8}, e.model.parameters().front().options());
  const auto digits = e.model.as<VaeImpl>().draw(codes);
  return {etude::image_sample("digits", digits.reshape({4, 4, 8, 8}).transpose(1, 2).reshape({32, 32}))};
}

void train(const etude::TrainingArguments& args) {
  const auto images = digits::read().first;
  etude::Trainer<etude::EvaluationSamplesCallback, etude::SamplesToFolderCallback> trainer(
      {.model_init = [] { return Vae(); },
       .args = args,
       .compute_loss = compute_loss,
       .train_dataset = images.narrow(0, 0, 1440),
       .eval_dataset = etude::Dataset(images.narrow(0, 1440, 357))},
      etude::EvaluationSamplesCallback{.make = draw_digits});
  trainer.train();
}

int main(int argc, char** argv) {
  auto args = digits::arguments();
  args.output_dir = "vae_output";
  args.num_train_epochs = 10;
  args.lr_scheduler_type = etude::SchedulerType::constant;
  args.max_grad_norm = 0;
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  args.log_lines = {"epoch {epoch:.0f} loss {loss:.6f} reconstruction {reconstruction:.6f} kl {kl:.6f}",
                    "epoch {epoch:.0f} eval_loss {eval_loss:.6f} eval_reconstruction "
                    "{eval_reconstruction:.6f} eval_kl {eval_kl:.6f}"};
  return etude::run(argc, argv, args, train);
}
