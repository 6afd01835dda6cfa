/// The loop that `../digits.cpp` replaces, in plain LibTorch: `digits_loop EPOCHS DATA [sequential]`.

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

constexpr std::int64_t batch_size = 32, eval_batch_size = 256, patience = 5;
constexpr double learning_rate = 2e-3, weight_decay = 0.01, warmup = 0.1, max_grad_norm = 1;
constexpr std::uint64_t seed = 42;

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor pixels) {
    auto x = torch::relu(norm1(conv1(pixels)));
    x = torch::max_pool2d(torch::relu(norm2(conv2(x))), 2);
    return head(dropout(x.flatten(1)));
  }

  torch::nn::Conv2d conv1 =
      register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 24, 3).padding(1)));
  torch::nn::BatchNorm2d norm1 = register_module("norm1", torch::nn::BatchNorm2d(24));
  torch::nn::Conv2d conv2 =
      register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(24, 48, 3).padding(1)));
  torch::nn::BatchNorm2d norm2 = register_module("norm2", torch::nn::BatchNorm2d(48));
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout(0.3));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(48 * 4 * 4, 10));
};
TORCH_MODULE(Net);

struct Examples {
  torch::Tensor pixels, digits;
  Examples rows(const torch::Tensor& indices) const {
    return {pixels.index_select(0, indices), digits.index_select(0, indices)};
  }
};

Examples read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("can't read " + path);
  std::vector<float> numbers;
  for (std::string number; std::getline(file, number, numbers.size() % 65 == 64 ? '\n' : ',');)
    numbers.push_back(std::stof(number));
  const auto table = torch::tensor(numbers).reshape({-1, 65});
  return {table.narrow(1, 0, 64).reshape({-1, 1, 8, 8}) / 16, table.select(1, 64).to(torch::kLong)};
}

double learning_rate_at(std::int64_t step, std::int64_t warmup_steps, std::int64_t steps) {
  if (step < warmup_steps)
    return learning_rate * static_cast<double>(step) / static_cast<double>(warmup_steps);
  const auto progress = static_cast<double>(step - warmup_steps) /
                        static_cast<double>(std::max<std::int64_t>(steps - warmup_steps, 1));
  return learning_rate * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "digits_loop EPOCHS DATA [sequential]\n"), 1;
  const std::int64_t epochs = std::atoi(argv[1]);
  const bool shuffles = argc == 3;
  const torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);

  const auto all = read(argv[2]);
  torch::manual_seed(seed);
  const auto order = torch::randperm(all.digits.size(0)).split(all.digits.size(0) * 8 / 10);
  const auto train = all.rows(order[0]), test = all.rows(order[1]);

  torch::manual_seed(seed);
  Net model;
  model->to(device);
  // [loop]
  std::vector<torch::Tensor> decayed, others;  // without decay: biases and norms
  for (const auto& item : model->named_parameters())
    (item.value().dim() > 1 ? decayed : others).push_back(item.value());
  const auto options = [](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(
        torch::optim::AdamWOptions(learning_rate).weight_decay(decay));
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(decayed, options(weight_decay));
  groups.emplace_back(others, options(0));
  torch::optim::AdamW optimizer(std::move(groups));

  const auto batches = (train.digits.size(0) + batch_size - 1) / batch_size;
  const auto steps = epochs * batches;
  const auto warmup_steps = static_cast<std::int64_t>(std::ceil(warmup * static_cast<double>(steps)));
  std::int64_t step = 0, epochs_without_improvement = 0;
  double best = 0;
  for (std::int64_t epoch = 1; epoch <= epochs; ++epoch) {
    model->train();
    const auto shuffled =
        shuffles ? torch::randperm(train.digits.size(0)) : torch::arange(train.digits.size(0));
    auto total = torch::zeros({}, device);
    for (const auto& rows : shuffled.split(batch_size)) {
      const auto batch = train.rows(rows);
      for (auto& group : optimizer.param_groups())
        group.options().set_lr(learning_rate_at(step, warmup_steps, steps));
      optimizer.zero_grad();
      const auto loss =
          torch::nn::functional::cross_entropy(model(batch.pixels.to(device)), batch.digits.to(device));
      loss.backward();
      torch::nn::utils::clip_grad_norm_(model->parameters(), max_grad_norm);
      optimizer.step();
      total += loss.detach();
      ++step;
    }
    std::printf("epoch %ld loss %.6f\n", epoch, total.item<double>() / static_cast<double>(batches));

    model->eval();
    const torch::NoGradGuard no_grad;
    double eval_loss = 0, right = 0;
    for (const auto& rows : torch::arange(test.digits.size(0)).split(eval_batch_size)) {
      const auto batch = test.rows(rows);
      const auto logits = model(batch.pixels.to(device)).cpu();
      eval_loss += torch::nn::functional::cross_entropy(logits, batch.digits).item<double>() *
                   static_cast<double>(rows.size(0));
      right += logits.argmax(1).eq(batch.digits).sum().item<double>();
    }
    const auto count = static_cast<double>(test.digits.size(0));
    const double accuracy = right / count;
    std::printf("epoch %ld eval_loss %.6f accuracy %.4f\n", epoch, eval_loss / count, accuracy);
    if (accuracy > best) {
      best = accuracy;
      epochs_without_improvement = 0;
      torch::save(model, "digits.pt");
    } else if (++epochs_without_improvement >= patience) {
      break;
    }
  }
  torch::load(model, "digits.pt");
  // [/loop]
  std::printf("accuracy on %ld digits that it was not trained on: %.4f\n", test.digits.size(0), best);
}
