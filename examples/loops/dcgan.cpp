/// The loop that `../dcgan.cpp` replaces, in plain LibTorch: `dcgan_loop EPOCHS DATA`.

#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

constexpr std::int64_t batch_size = 32;
constexpr std::uint64_t seed = 42;

struct GanImpl : torch::nn::Module {
  torch::nn::Sequential generator = register_module(
      "generator",
      torch::nn::Sequential(
          torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(16, 32, 4).bias(false)),
          torch::nn::BatchNorm2d(32), torch::nn::ReLU(),
          torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(32, 1, 4).stride(2).padding(1)),
          torch::nn::Sigmoid()));
  torch::nn::Sequential discriminator = register_module(
      "discriminator",
      torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 32, 4).stride(2).padding(1)),
                            torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)),
                            torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 1, 4)), torch::nn::Flatten()));
};
TORCH_MODULE(Gan);

torch::Tensor read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("can't read " + path);
  std::vector<float> numbers;
  for (std::string number; std::getline(file, number, numbers.size() % 65 == 64 ? '\n' : ',');)
    numbers.push_back(std::stof(number));
  return torch::tensor(numbers).reshape({-1, 65}).narrow(1, 0, 64).reshape({-1, 1, 8, 8}) / 16;
}

torch::Tensor noise(std::int64_t count, torch::Device device) {
  return torch::randn({count, 16, 1, 1}, torch::TensorOptions(device));
}

void draw(const torch::Tensor& images) {
  for (std::int64_t row = 0; row < 8; ++row, std::printf("\n"))
    for (std::int64_t i = 0; i < images.size(0); ++i, std::printf("  "))
      for (std::int64_t column = 0; column < 8; ++column) {
        const char shade = " .:+#"[static_cast<int>(images[i][0][row][column].item<double>() * 4.99)];
        std::printf("%c%c", shade, shade);
      }
}

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "dcgan_loop EPOCHS DATA\n"), 1;
  const std::int64_t epochs = std::atoi(argv[1]);
  const torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);
  const auto images = read(argv[2]);

  torch::manual_seed(seed);
  Gan gan;
  gan->to(device);
  torch::optim::Adam generator_optimizer(gan->generator->parameters(),
                                         torch::optim::AdamOptions(1e-3).betas({0.5, 0.999}));
  torch::optim::Adam discriminator_optimizer(gan->discriminator->parameters(),
                                             torch::optim::AdamOptions(5e-4).betas({0.5, 0.999}));
  const auto loss_of = [&](const torch::Tensor& batch, double label) {
    const auto scores = gan->discriminator->forward(batch);
    return torch::binary_cross_entropy_with_logits(scores, torch::full_like(scores, label));
  };

  for (std::int64_t epoch = 1; epoch <= epochs; ++epoch) {
    gan->train();
    auto discriminator_total = torch::zeros({}, device), generator_total = torch::zeros({}, device);
    std::int64_t batches = 0;
    for (const auto& batch : images.split(batch_size)) {
      const auto drawn = gan->generator->forward(noise(batch.size(0), device));

      discriminator_optimizer.zero_grad();
      const auto discriminator_loss = loss_of(batch.to(device), 0.9) + loss_of(drawn.detach(), 0);
      discriminator_loss.backward();
      discriminator_optimizer.step();

      generator_optimizer.zero_grad();
      const auto generator_loss = loss_of(drawn, 1);
      generator_loss.backward();
      generator_optimizer.step();

      discriminator_total += discriminator_loss.detach();
      generator_total += generator_loss.detach();
      ++batches;
    }
    std::printf("epoch %ld discriminator_loss %.6f generator_loss %.6f\n", epoch,
                discriminator_total.item<double>() / static_cast<double>(batches),
                generator_total.item<double>() / static_cast<double>(batches));
    torch::save(gan, "gan.pt");
    torch::save(generator_optimizer, "generator_optimizer.pt");
    torch::save(discriminator_optimizer, "discriminator_optimizer.pt");
  }
  gan->eval();
  const torch::NoGradGuard no_grad;
  draw(gan->generator->forward(noise(6, device)).cpu());
}
