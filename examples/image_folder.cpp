/// A convolutional network learns from a folder of image files, which worker threads decode and transform.
/// `loops/image_folder.cpp` is the loop that it replaces.

#include <png.h>

#include <algorithm>
#include <etude/formats/png.hpp>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "data/digits.hpp"

namespace fs = std::filesystem;

struct Options {
  ETUDE_STRUCT(
      Options,
      (std::string, images,
       "a folder with train/CLASS/*.png and test/CLASS/*.png of one size; if it doesn't exist, it is "
       "made of the digits in examples/data",
       "digit_images"),
      (bool, augment, "shift the images of the training at random", true));
};

/// The grey pixels of a PNG file [1, H, W], between 0 and 1.
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

/// Image files and their classes, as torchvision's ImageFolder has them: each folder is a class, in
/// alphabetical order. The examples are in the order of the files' names.
struct ImageFolder {
  ImageFolder(const fs::path& root, bool augment_) : augment(augment_) {
    std::vector<fs::path> classes;
    for (const auto& folder : fs::directory_iterator(root)) classes.push_back(folder.path());
    std::ranges::sort(classes);
    for (std::size_t i = 0; i < classes.size(); ++i)
      for (const auto& file : fs::directory_iterator(classes[i]))
        if (file.path().extension() == ".png") examples.emplace_back(file.path(), i);
    std::ranges::sort(examples, {}, [](const auto& example) { return example.first.filename(); });
    if (examples.empty()) throw std::runtime_error(root.string() + " has no CLASS/*.png");
  }

  std::size_t size() const { return examples.size(); }

  /// Called by the workers. Whatever their number, an example has the same random numbers.
  std::pair<torch::Tensor, std::int64_t> get(std::size_t index, torch::Generator& random) const {
    const auto& [path, label] = examples[index];
    auto pixels = read_png(path);
    if (augment) {
      const auto height = pixels.size(1), width = pixels.size(2);
      const auto corner = torch::randint(3, {2}, random);
      pixels = torch::constant_pad_nd(pixels, {1, 1, 1, 1})
                   .narrow(1, corner[0].item<std::int64_t>(), height)
                   .narrow(2, corner[1].item<std::int64_t>(), width);
    }
    return {(pixels - 0.5) / 0.5, label};
  }

  std::vector<std::pair<fs::path, std::int64_t>> examples;
  bool augment;
};

/// A folder whose writing is interrupted doesn't count as written.
void write_digits(const fs::path& root) {
  const auto [pixels, labels] = digits::read();
  const auto partial = root.string() + ".partial";
  for (std::int64_t i = 0; i < labels.size(0); ++i) {
    const auto folder =
        fs::path(partial) / (i < 1440 ? "train" : "test") / std::to_string(labels[i].item<std::int64_t>());
    fs::create_directories(folder);
    std::ofstream file(folder / fmt::format("{:04}.png", i), std::ios::binary);
    file << etude::png_file((pixels[i] * 255).round().to(torch::kByte).reshape({8, 8, 1}));
    if (!file.flush()) throw std::runtime_error("can't write to " + folder.string());
  }
  fs::rename(partial, root);
}

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

void train(const etude::TrainingArguments& args, const Options& options) {
  const fs::path root = options.images;
  if (!fs::exists(root)) write_digits(root);
  etude::Trainer<> trainer({.model_init = [] { return Net(); },
                            .args = args,
                            .loss = torch::nn::CrossEntropyLoss(),
                            .train_dataset = ImageFolder(root / "train", options.augment),
                            .eval_dataset = etude::Dataset(ImageFolder(root / "test", false)),
                            .compute_metrics = etude::metrics::accuracy});
  trainer.train();
}

int main(int argc, char** argv) {
  auto defaults = digits::arguments();
  defaults.output_dir = "image_folder_output";
  defaults.optim = etude::OptimizerNames::adam;
  defaults.lr_scheduler_type = etude::SchedulerType::constant;
  defaults.max_grad_norm = 0;
  defaults.dataloader_num_workers = 2;
  defaults.report = etude::ReportMode::lines;
  defaults.log_lines = {"epoch {epoch:.0f} loss {loss:.6f}",
                        "epoch {epoch:.0f} eval_loss {eval_loss:.6f} accuracy {eval_accuracy:.4f}"};
  return etude::run(argc, argv, defaults, Options{}, train);
}
