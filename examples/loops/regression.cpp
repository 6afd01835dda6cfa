/// The loop that `../regression.cpp` replaces, in plain LibTorch: `regression_loop EPOCHS DATA`.

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

constexpr std::int64_t batch_size = 32;
constexpr std::uint64_t seed = 42;

struct NetImpl : torch::nn::Module {
  NetImpl(const torch::Tensor& x, const torch::Tensor& y) {
    x_mean = register_buffer("x_mean", x.mean(0));
    x_std = register_buffer("x_std", x.std(0));
    y_mean = register_buffer("y_mean", y.mean(0));
    y_std = register_buffer("y_std", y.std(0));
    hidden = register_module("hidden", torch::nn::Linear(x.size(1), 16));
    out = register_module("out", torch::nn::Linear(16, 1));
  }
  torch::Tensor forward(torch::Tensor x) {
    return out(torch::tanh(hidden((x - x_mean) / x_std))) * y_std + y_mean;
  }
  torch::Tensor x_mean, x_std, y_mean, y_std;
  torch::nn::Linear hidden = nullptr, out = nullptr;
};
TORCH_MODULE(Net);

/// The numbers of a CSV file [rows, columns], whose first line is a header.
torch::Tensor read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("can't read " + path);
  std::string line, field;
  std::getline(file, line);
  std::vector<float> numbers;
  std::int64_t rows = 0;
  for (; std::getline(file, line); ++rows) {
    std::istringstream fields(line);
    while (std::getline(fields, field, ',')) numbers.push_back(std::stof(field));
  }
  return torch::tensor(numbers).reshape({rows, -1});
}

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "regression_loop EPOCHS DATA\n"), 1;
  const std::int64_t epochs = std::atoi(argv[1]);
  const torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);

  const auto table = read(argv[2]);
  const auto last = table.size(1) - 1;
  const auto x = table.narrow(1, 0, last).to(device), y = table.narrow(1, last, 1).to(device);
  const auto count = table.size(0) * 8 / 10, rest = table.size(0) - count;
  const auto train_x = x.narrow(0, 0, count), train_y = y.narrow(0, 0, count);
  const auto test_x = x.narrow(0, count, rest), test_y = y.narrow(0, count, rest);

  torch::manual_seed(seed);
  Net model(train_x, train_y);
  model->to(device);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(5e-3));
  double best = -std::numeric_limits<double>::infinity();
  for (std::int64_t epoch = 1; epoch <= epochs; ++epoch) {
    model->train();
    double total = 0;
    std::int64_t batches = 0;
    for (std::int64_t i = 0; i < count; i += batch_size, ++batches) {
      const auto size = std::min(batch_size, count - i);
      optimizer.zero_grad();
      const auto loss = torch::mse_loss(model(train_x.narrow(0, i, size)), train_y.narrow(0, i, size));
      loss.backward();
      optimizer.step();
      total += loss.item<double>();
    }
    std::printf("epoch %ld loss %.6f\n", epoch, total / static_cast<double>(batches));

    model->eval();
    const torch::NoGradGuard no_grad;
    const auto errors = model(test_x) - test_y;
    const double mse = errors.square().mean().item<double>();
    const double r2 = 1 - mse / test_y.var(0, false).item<double>();
    std::printf("epoch %ld eval_loss %.6f mae %.6f r2 %.6f\n", epoch, mse, errors.abs().mean().item<double>(),
                r2);
    if (r2 > best) {
      best = r2;
      torch::save(model, "regression.pt");
    }
  }

  torch::load(model, "regression.pt");
  model->eval();
  const torch::NoGradGuard no_grad;
  const auto predictions = model(test_x).cpu(), targets = test_y.cpu();
  std::ofstream file("eval_predictions.csv");
  file << "prediction,target\n";
  for (std::int64_t i = 0; i < rest; ++i)
    file << predictions[i].item<float>() << ',' << targets[i].item<float>() << '\n';
}
