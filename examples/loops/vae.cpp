/// The loop that `../vae.cpp` replaces, in plain LibTorch: `vae_loop EPOCHS DATA`.

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

constexpr std::int64_t batch_size = 32, eval_batch_size = 256, train_size = 1440;
constexpr std::uint64_t seed = 42;

struct Output {
  torch::Tensor images, mean, log_variance;
};

struct VaeImpl : torch::nn::Module {
  Output forward(torch::Tensor images) {
    const auto hidden = torch::relu(encode(images.flatten(1)));
    const auto mean = to_mean(hidden), log_variance = to_log_variance(hidden);
    const auto code = mean + torch::randn_like(mean) * torch::exp(log_variance / 2);
    return {draw(code), mean, log_variance};
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

torch::Tensor read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("can't read " + path);
  std::vector<float> numbers;
  for (std::string number; std::getline(file, number, numbers.size() % 65 == 64 ? '\n' : ',');)
    numbers.push_back(std::stof(number));
  return torch::tensor(numbers).reshape({-1, 65}).narrow(1, 0, 64).reshape({-1, 1, 8, 8}) / 16;
}

struct Losses {
  torch::Tensor reconstruction, kl;
};

Losses losses(const Output& output, const torch::Tensor& images) {
  const auto count = static_cast<double>(images.size(0));
  return {torch::binary_cross_entropy(output.images, images, {}, at::Reduction::Sum) / count,
          -0.5 * (1 + output.log_variance - output.mean.square() - output.log_variance.exp()).sum() / count};
}

void print(std::int64_t epoch, const char* prefix, double reconstruction, double kl) {
  std::printf("epoch %ld %sloss %.6f %sreconstruction %.6f %skl %.6f\n", epoch, prefix, reconstruction + kl,
              prefix, reconstruction, prefix, kl);
}

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "vae_loop EPOCHS DATA\n"), 1;
  const std::int64_t epochs = std::atoi(argv[1]);
  const torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);
  const auto all = read(argv[2]);
  const auto train = all.narrow(0, 0, train_size), test = all.narrow(0, train_size, all.size(0) - train_size);

  torch::manual_seed(seed);
  Vae model;
  model->to(device);
  std::vector<torch::Tensor> decayed, biases;
  for (const auto& item : model->named_parameters())
    (item.value().dim() > 1 ? decayed : biases).push_back(item.value());
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const auto& group : {decayed, biases})
    groups.emplace_back(group, std::make_unique<torch::optim::AdamWOptions>(
                                   torch::optim::AdamWOptions(2e-3).weight_decay(0)));
  torch::optim::AdamW optimizer(std::move(groups));

  for (std::int64_t epoch = 1; epoch <= epochs; ++epoch) {
    model->train();
    auto reconstruction = torch::zeros({}, device), kl = torch::zeros({}, device);
    double batches = 0;
    for (const auto& batch : train.split(batch_size)) {
      const auto images = batch.to(device);
      optimizer.zero_grad();
      const auto loss = losses(model->forward(images), images);
      (loss.reconstruction + loss.kl).backward();
      optimizer.step();
      reconstruction += loss.reconstruction.detach();
      kl += loss.kl.detach();
      ++batches;
    }
    print(epoch, "", reconstruction.item<double>() / batches, kl.item<double>() / batches);

    model->eval();
    const torch::NoGradGuard no_grad;
    // An evaluation must not change the random numbers of the training.
    auto generator = at::detail::getDefaultCPUGenerator();
    const auto random_state = generator.get_state();
    double eval_reconstruction = 0, eval_kl = 0;
    for (const auto& batch : test.split(eval_batch_size)) {
      const auto images = batch.to(device);
      const auto loss = losses(model->forward(images), images);
      const double share = static_cast<double>(images.size(0)) / static_cast<double>(test.size(0));
      eval_reconstruction += loss.reconstruction.item<double>() * share;
      eval_kl += loss.kl.item<double>() * share;
    }
    generator.set_state(random_state);
    print(epoch, "eval_", eval_reconstruction, eval_kl);
    torch::save(model, "vae.pt");
    torch::save(optimizer, "optimizer.pt");
  }
}
