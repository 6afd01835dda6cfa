/// Trains a model that Python exported with LibTorch's own optimizer, without a trainer:
///
///   exported_train model.pt2 folder

#include <fmt/core.h>
#include <torch/torch.h>

#include <etude/checkpoint/model_files.hpp>
#include <etude/model/load_exported.hpp>
#include <exception>

int main(int argc, char** argv) try {
  if (argc != 3) {
    fmt::print(stderr, "usage: exported_train MODEL.pt2 FOLDER\n");
    return 2;
  }
  etude::ExportedModule model = etude::load_exported(argv[1]);
  const auto x = torch::linspace(-1, 1, 64).reshape({64, 1});
  const auto y = torch::sin(3 * x);

  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
  for (int step = 0; step < 200; ++step) {
    const torch::Tensor output = model(x);  // with several outputs: model(x).at("logits")
    const auto loss = torch::mse_loss(output, y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 50 == 49) fmt::print("step {}: loss {:.9f}\n", step + 1, loss.item<double>());
  }
  etude::save_model_files(argv[2], etude::Model(model).state_dict());    // model.safetensors
  model->save_exported(std::filesystem::path(argv[2]) / "trained.pt2");  // torch.export.load
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
