#pragma once

#include <etude/etude.hpp>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

/// The handwritten digits that several examples learn to read, 1,797 images of 8x8 pixels, and a small
/// network.
namespace digits {

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor pixels) { return out(torch::relu(hidden(pixels.flatten(1)))); }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(64, 64));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(64, 10));
};
TORCH_MODULE(Net);

/// Pixels [N, 1, 8, 8] between 0 and 1, and digits [N].
inline std::pair<torch::Tensor, torch::Tensor> read(const std::string& path = ETUDE_EXAMPLE_DATA
                                                    "/optdigits.csv") {
  std::ifstream file(path);
  if (!file) throw etude::DataError("can't read " + path);
  std::vector<float> numbers;
  for (std::string number; std::getline(file, number, numbers.size() % 65 == 64 ? '\n' : ',');)
    numbers.push_back(std::stof(number));
  const auto table = torch::tensor(numbers).reshape({-1, 65});
  return {table.narrow(1, 0, 64).reshape({-1, 1, 8, 8}) / 16, table.select(1, 64).to(torch::kLong)};
}

struct Split {
  std::pair<torch::Tensor, torch::Tensor> train, test;
};

/// Holds out a fifth of the images, chosen by the seed, for testing.
inline Split split(const std::pair<torch::Tensor, torch::Tensor>& all, std::int64_t seed) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  const auto order = torch::randperm(all.second.size(0)).split(all.second.size(0) * 8 / 10);
  const auto part = [&](const torch::Tensor& rows) {
    return std::pair(all.first.index_select(0, rows), all.second.index_select(0, rows));
  };
  return {part(order[0]), part(order[1])};
}

inline etude::Dataset dataset(const std::pair<torch::Tensor, torch::Tensor>& part) {
  return {part.first, part.second};
}

/// Defaults that suit this network; the command line overrides them.
inline etude::TrainingArguments arguments() {
  return {.output_dir = "digits_output",
          .per_device_train_batch_size = 32,
          .per_device_eval_batch_size = 256,
          .num_train_epochs = 5,
          .learning_rate = 2e-3,
          .eval_strategy = etude::IntervalStrategy::epoch,
          .save_strategy = etude::SaveStrategy::no,
          .logging_strategy = etude::IntervalStrategy::epoch};
}

}  // namespace digits
