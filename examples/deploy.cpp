/// Runs a network that a trainer saved, without needing a trainer, and exports its weights:
///
///   deploy digits_output/checkpoint-225 optdigits.csv exported
///
/// The first folder is a checkpoint or one that `save_model` wrote.

#include <fmt/core.h>
#include <torch/torch.h>

#include <etude/checkpoint/load_weights.hpp>
#include <etude/model/equal.hpp>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <vector>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor pixels) { return out(torch::relu(hidden(pixels))); }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(64, 64));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(64, 10));
};
TORCH_MODULE(Net);

int main(int argc, char** argv) try {
  if (argc != 4) {
    fmt::print(stderr, "usage: deploy FOLDER DIGITS EXPORT_FOLDER\n");
    return 2;
  }
  Net net;
  etude::load_weights(*net, argv[1], {.strict = true});
  net->eval();
  const torch::NoGradGuard no_grad;

  std::ifstream file(argv[2]);
  int count = 0, right = 0;
  for (std::vector<float> numbers; file;) {
    numbers.resize(65);  // pixels from 0 to 16, and the digit
    char comma;
    for (auto& number : numbers) file >> number&& file.peek() == ',' && file.get(comma);
    if (!file) break;
    const auto pixels = torch::tensor(numbers).narrow(0, 0, 64) / 16;
    right += net(pixels).argmax().item<int>() == static_cast<int>(numbers[64]);
    ++count;
  }
  fmt::print("{} of {} digits are right\n", right, count);

  etude::save_model_files(argv[3], etude::state_dict(*net));
  Net exported;
  etude::load_weights(*exported, argv[3], {.strict = true});
  if (const auto same = etude::equal(*net, *exported); !same) throw std::runtime_error(same.difference);
  fmt::print("the exported weights are the same\n");
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
