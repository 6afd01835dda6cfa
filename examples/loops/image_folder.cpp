/// The loop that `../image_folder.cpp` replaces, in plain LibTorch: `image_folder_loop EPOCHS FOLDER
/// [plain]`.

#include <png.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

constexpr std::size_t batch_size = 32, eval_batch_size = 256, workers = 2;
constexpr std::uint64_t seed = 42;

torch::Tensor read_png(const fs::path& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, decltype(&png_image_free)> freed(&image, png_image_free);
  const auto check = [&](int succeeded) {
    if (succeeded == 0) throw std::runtime_error(path.string() + ": " + image.message);
  };
  check(png_image_begin_read_from_file(&image, path.c_str()));
  image.format = PNG_FORMAT_GRAY;
  const auto pixels = torch::empty({1, image.height, image.width}, torch::kByte);
  check(png_image_finish_read(&image, nullptr, pixels.data_ptr(), 0, nullptr));
  return pixels.to(torch::kFloat) / 255;
}

struct ImageFolder : torch::data::datasets::Dataset<ImageFolder> {
  ImageFolder(const fs::path& root, bool augment_) : augment(augment_) {
    std::vector<fs::path> classes;
    for (const auto& folder : fs::directory_iterator(root)) classes.push_back(folder.path());
    std::ranges::sort(classes);
    for (std::size_t i = 0; i < classes.size(); ++i)
      for (const auto& file : fs::directory_iterator(classes[i]))
        if (file.path().extension() == ".png") examples.emplace_back(file.path(), i);
    std::ranges::sort(examples);
    if (examples.empty()) throw std::runtime_error(root.string() + " has no CLASS/*.png");
  }

  torch::optional<std::size_t> size() const override { return examples.size(); }

  /// The random numbers depend on the order in which workers run.
  torch::data::Example<> get(std::size_t index) override {
    const auto& [path, label] = examples[index];
    auto pixels = read_png(path);
    if (augment) {
      const auto height = pixels.size(1), width = pixels.size(2);
      const auto corner = torch::randint(3, {2});
      pixels = torch::constant_pad_nd(pixels, {1, 1, 1, 1})
                   .narrow(1, corner[0].item<std::int64_t>(), height)
                   .narrow(2, corner[1].item<std::int64_t>(), width);
    }
    return {(pixels - 0.5) / 0.5, torch::tensor(label)};
  }

  std::vector<std::pair<fs::path, std::int64_t>> examples;
  bool augment;
};

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(conv2(torch::relu(conv1(x))));
    return out(torch::adaptive_avg_pool2d(x, {4, 4}).flatten(1));
  }
  torch::nn::Conv2d conv1 =
      register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 3).padding(1)));
  torch::nn::Conv2d conv2 =
      register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 3).padding(1)));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(32 * 4 * 4, 10));
};
TORCH_MODULE(Net);

template <class Loader>
double train_epoch(Net& model, torch::optim::Optimizer& optimizer, Loader& loader, torch::Device device) {
  model->train();
  auto total = torch::zeros({}, device);
  double batches = 0;
  for (const auto& batch : loader) {
    optimizer.zero_grad();
    const auto loss =
        torch::nn::functional::cross_entropy(model(batch.data.to(device)), batch.target.to(device));
    loss.backward();
    optimizer.step();
    total += loss.detach();
    ++batches;
  }
  return total.item<double>() / batches;
}

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "image_folder_loop EPOCHS FOLDER [plain]\n"), 1;
  const int epochs = std::atoi(argv[1]);
  const fs::path root = argv[2];
  const bool plain = argc > 3;  // in order, and without random shifts
  const torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);

  torch::manual_seed(seed);
  Net model;
  model->to(device);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(2e-3));
  const auto options = torch::data::DataLoaderOptions().batch_size(batch_size).workers(workers);
  auto images = ImageFolder(root / "train", !plain).map(torch::data::transforms::Stack<>());
  auto in_order = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(images, options);
  auto shuffled = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(images, options);
  const ImageFolder test(root / "test", false);
  auto test_loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      ImageFolder(test).map(torch::data::transforms::Stack<>()),
      torch::data::DataLoaderOptions().batch_size(eval_batch_size).workers(workers));

  for (int epoch = 1; epoch <= epochs; ++epoch) {
    const double loss = plain ? train_epoch(model, optimizer, *in_order, device)
                              : train_epoch(model, optimizer, *shuffled, device);
    std::printf("epoch %d loss %.6f\n", epoch, loss);

    model->eval();
    const torch::NoGradGuard no_grad;
    double eval_loss = 0, right = 0;
    for (const auto& batch : *test_loader) {
      const auto logits = model(batch.data.to(device)).cpu();
      eval_loss += torch::nn::functional::cross_entropy(logits, batch.target).item<double>() *
                   static_cast<double>(logits.size(0));
      right += logits.argmax(1).eq(batch.target).sum().item<double>();
    }
    const auto count = static_cast<double>(test.examples.size());
    std::printf("epoch %d eval_loss %.6f accuracy %.4f\n", epoch, eval_loss / count, right / count);
  }
}
