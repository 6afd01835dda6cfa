// Makes a pass over PNG files, which workers decode and transform: `images_bench etude|torch_data FOLDER
// WORKERS` prints a line of JSON. `images_bench make FOLDER COUNT` writes the files. run.py runs this program
// and PyTorch's DataLoader.

#include <png.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <etude/data/data_loader.hpp>
#include <etude/formats/png.hpp>
#include <etude/libtorch/memory.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../measure.hpp"

namespace fs = std::filesystem;

constexpr std::int64_t side = 256, crop = 224, batch_size = 32;

/// RGB pixels [H, W, 3].
torch::Tensor read_png(const fs::path& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, decltype(&png_image_free)> freed(&image, png_image_free);
  const auto check = [&](int succeeded) {
    if (succeeded == 0) throw std::runtime_error(path.string() + ": " + image.message);
  };
  check(png_image_begin_read_from_file(&image, path.c_str()));
  image.format = PNG_FORMAT_RGB;
  auto pixels = torch::empty({image.height, image.width, 3}, torch::kByte);
  check(png_image_finish_read(&image, nullptr, pixels.data_ptr(), 0, nullptr));
  return pixels;
}

struct Files {
  explicit Files(const fs::path& folder) {
    for (const auto& file : fs::directory_iterator(folder)) paths.push_back(file.path());
    std::ranges::sort(paths);
  }
  std::size_t size() const { return paths.size(); }

  /// A crop of 224x224 pixels, mirrored if asked for, and normalized: float32 [3, 224, 224].
  torch::Tensor transformed(std::size_t index, std::int64_t top, std::int64_t left, bool is_mirrored) const {
    auto pixels = read_png(paths[index]).narrow(0, top, crop).narrow(1, left, crop);
    if (is_mirrored) pixels = pixels.flip(1);
    return pixels.permute({2, 0, 1}).to(torch::kFloat).div_(255).sub_(mean).div_(deviation);
  }

  std::vector<fs::path> paths;
  torch::Tensor mean = torch::tensor({0.485f, 0.456f, 0.406f}).reshape({3, 1, 1});
  torch::Tensor deviation = torch::tensor({0.229f, 0.224f, 0.225f}).reshape({3, 1, 1});
};

struct EtudeDataset : Files {
  using Files::Files;
  std::pair<torch::Tensor, std::int64_t> get(std::size_t index, torch::Generator& random) const {
    const auto drawn = torch::randint(side - crop + 1, {3}, random);
    const auto* numbers = drawn.data_ptr<std::int64_t>();
    return {transformed(index, numbers[0], numbers[1], numbers[2] % 2 == 1),
            static_cast<std::int64_t>(index)};
  }
};

struct TorchDataset : torch::data::datasets::Dataset<TorchDataset> {
  explicit TorchDataset(const fs::path& folder) : files(folder) {}
  torch::optional<std::size_t> size() const override { return files.size(); }
  torch::data::Example<> get(std::size_t index) override {
    thread_local std::mt19937 random(std::random_device{}());
    std::uniform_int_distribution<std::int64_t> place(0, side - crop);
    const auto top = place(random), left = place(random);
    return {files.transformed(index, top, left, place(random) % 2 == 1),
            torch::tensor(static_cast<std::int64_t>(index))};
  }
  Files files;
};

/// Smooth pictures with edges, which PNG compresses about as well as photographs.
void make(const fs::path& folder, std::int64_t count) {
  fs::create_directories(folder);
  torch::manual_seed(0);
  const auto axis = torch::linspace(0, 1, side);
  for (std::int64_t i = 0; i < count; ++i) {
    auto image = torch::empty({side, side, 3});
    for (std::int64_t channel = 0; channel < 3; ++channel) {
      const auto wave = torch::rand({6}) * 20;
      image.select(2, channel) = 0.5 +
                                 0.2 * torch::sin(wave[0] * axis.unsqueeze(1) + wave[1] * axis + wave[2]) +
                                 0.2 * torch::sin(wave[3] * axis.unsqueeze(1) * axis + wave[4]) +
                                 0.1 * (axis.unsqueeze(1) + axis > wave[5] / 10).to(torch::kFloat);
    }
    image += 0.01 * torch::randn({side, side, 1});
    std::ofstream file(folder / fmt::format("{:05}.png", i), std::ios::binary);
    file << etude::png_file((image.clamp(0, 1) * 255).round().to(torch::kByte).contiguous());
    if (!file.flush()) throw std::runtime_error("can't write to " + folder.string());
  }
}

int main(int argc, char** argv) {
  if (argc != 4) return fmt::print(stderr, "images_bench make|etude|torch_data FOLDER COUNT|WORKERS\n"), 1;
  const std::string contestant = argv[1];
  const fs::path folder = argv[2];
  const int number = std::atoi(argv[3]);
  if (contestant == "make") return make(folder, number), 0;

  std::int64_t images = 0;
  const auto consume = [&](const torch::Tensor& batch) { images += batch.size(0); };
  const double seconds = bench::seconds([&] {
    if (contestant == "etude") {
      etude::keep_freed_memory();  // as a trainer does
      const etude::DataLoader loader(EtudeDataset(folder),
                                     {.batch_size = batch_size, .shuffle = true, .num_workers = number});
      auto batches = loader.begin_epoch(0);
      while (auto batch = batches.next()) consume(batch->inputs[0]);
    } else {
      auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
          TorchDataset(folder).map(torch::data::transforms::Stack<>()),
          torch::data::DataLoaderOptions().batch_size(batch_size).workers(static_cast<std::size_t>(number)));
      for (const auto& batch : *loader) consume(batch.data);
    }
  });
  const auto first = Files(folder).transformed(0, 0, 0, true).to(torch::kDouble);
  const auto weights = torch::arange(first.numel()).reshape(first.sizes()).remainder(97);
  fmt::print("{{\"images\": {}, \"seconds\": {}, \"first\": {}}}\n", images, seconds,
             (first * weights).mean().item<double>());
}
