#pragma once

/// Shared by the programs of this folder. Pages of docs/ show parts of them,
/// between "// [name]" and "// [/name]".

#include <etude/etude.hpp>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor points) {
    return out(torch::relu(hidden(points)));
  }
  torch::nn::Linear hidden =
      register_module("hidden", torch::nn::Linear(2, 32));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(32, 2));
};
TORCH_MODULE(Net);

/// Points in a square, labelled by whether they lie in a circle.
inline etude::Dataset points(std::int64_t n) {
  torch::manual_seed(static_cast<std::uint64_t>(n));
  const auto x = torch::rand({n, 2}) * 2 - 1;
  return {x, x.square().sum(1).lt(0.6).to(torch::kLong)};
}

/// A short training without checkpoints.
inline etude::TrainingArguments small_arguments() {
  return {
      .output_dir = "docs_output",
      .max_steps = 40,
      .learning_rate = 1e-2,
      .save_strategy = etude::SaveStrategy::no,
      .disable_tqdm = true};
}

inline void check(bool holds, const char* what) {
  if (!holds)
    throw std::runtime_error(fmt::format("not as the pages say: {}", what));
}

/// Runs the parts of a program.
template <class... Parts>
int run(Parts... parts) try {
  (parts(), ...);
  fmt::print("all parts hold\n");
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
