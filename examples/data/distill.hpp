#pragma once

#include <torch/torch.h>

#include <cmath>
#include <cstdint>

/// For the example distill: images of two stripes, the networks, the views and the losses. The student learns
/// from a frozen teacher, and from a slow copy of itself that sees another view of the same image.

constexpr std::int64_t train_images = 2048, test_images = 512, batch_size = 64, epochs = 6, classes = 4,
                       side = 16;
constexpr double learning_rate = 0.05, momentum = 0.9, decay = 0.99, temperature = 2, consistency = 0.5;

struct Data {
  torch::Tensor images, labels;
};
inline Data images(std::int64_t n, std::uint64_t seed) {
  auto g = torch::make_generator<torch::CPUGeneratorImpl>(seed);
  const auto labels = torch::randint(classes, {n}, g, torch::kLong);
  auto images = 0.6 * torch::randn({n, 1, side, side}, g);
  const auto at = torch::arange(side).to(torch::kFloat);
  const auto phase = torch::rand({n, 1, 1}, g) * 6.28;
  const auto x = at.view({1, 1, side}), y = at.view({1, side, 1});
  const auto angle = (labels.to(torch::kFloat) * (M_PI / classes)).view({n, 1, 1});
  images += (x * angle.cos() + y * angle.sin() + phase).sin().unsqueeze(1);
  return {images, labels};
}

/// Shifts images cyclically by up to two pixels, equally for the whole batch, and adds noise.
inline torch::Tensor view(const torch::Tensor& images) {
  const auto by = torch::randint(-2, 3, {2});
  const auto shifted = torch::roll(images, {by[0].item<std::int64_t>(), by[1].item<std::int64_t>()}, {2, 3});
  return shifted + 0.2 * torch::randn_like(shifted);
}

inline torch::nn::Sequential convolutions(std::int64_t width) {
  const auto c = [](std::int64_t in, std::int64_t out) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1).stride(2));
  };
  return torch::nn::Sequential(c(1, width), torch::nn::BatchNorm2d(width), torch::nn::ReLU(),
                               c(width, 2 * width), torch::nn::BatchNorm2d(2 * width), torch::nn::ReLU(),
                               torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten(),
                               torch::nn::Linear(2 * width, classes));
}

/// A wider network, trained briefly on clean labels; it stands in for a pretrained one.
inline torch::nn::Sequential trained_teacher() {
  torch::manual_seed(1);
  auto teacher = convolutions(24);
  torch::optim::Adam optimizer(teacher->parameters(), torch::optim::AdamOptions(3e-3));
  const auto data = images(1024, 5);
  for (int epoch = 0; epoch < 6; ++epoch)
    for (std::int64_t i = 0; i < 1024; i += 64) {
      optimizer.zero_grad();
      torch::cross_entropy_loss(teacher->forward(data.images.slice(0, i, i + 64)),
                                data.labels.slice(0, i, i + 64))
          .backward();
      optimizer.step();
    }
  teacher->eval();
  for (auto& parameter : teacher->parameters()) parameter.requires_grad_(false);
  return teacher;
}

inline torch::Tensor distance(const torch::Tensor& from, const torch::Tensor& to) {
  return torch::kl_div((from / temperature).log_softmax(1), (to / temperature).softmax(1),
                       at::Reduction::Sum) *
         (temperature * temperature / static_cast<double>(from.size(0)));
}
