/// A convolutional network learns from a folder of image files, which worker threads decode and transform.
/// `loops/image_folder.cpp` is the loop that it replaces.

#include <etude/formats/image_folder.hpp>
#include <etude/formats/png.hpp>
#include <filesystem>
#include <stdexcept>

#include "data/digits.hpp"

namespace fs = std::filesystem;

struct Options {
  ETUDE_STRUCT(
      Options,
      (std::string, images,
       "a folder with train/CLASS/*.png and test/CLASS/*.png (or .jpg); if it doesn't exist, it is made of "
       "the digits in examples/data",
       "digit_images"),
      (bool, augment, "shift the images of the training at random", true));
};

/// The images of a folder that has a folder for each class, randomly shifted by up to a pixel.
struct Shifted {
  etude::ImageFolder images;

  std::size_t size() const { return images.size(); }

  /// Called by the workers. An example gets the same random numbers with any number of workers.
  std::pair<torch::Tensor, std::int64_t> get(std::size_t index, torch::Generator& random) const {
    const auto [pixels, label] = images.get(index, random);
    const auto corner = torch::randint(3, {2}, random);
    constexpr double black = -1;
    return {torch::constant_pad_nd(pixels, {1, 1, 1, 1}, black)
                .narrow(1, corner[0].item<std::int64_t>(), pixels.size(1))
                .narrow(2, corner[1].item<std::int64_t>(), pixels.size(2)),
            label};
  }
};

/// Renames the folder at the end, so that an interrupted write leaves no incomplete one.
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
  const etude::ImageFolderOptions format{.height = 8, .width = 8, .channels = 1, .mean = {0.5}, .std = {0.5}};
  const etude::ImageFolder images(root / "train", format);
  auto test_format = format;
  test_format.classes = images.classes();
  etude::Trainer<> trainer(
      {.model_init = [] { return Net(); },
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = options.augment ? etude::Dataset(Shifted{images}) : etude::Dataset(images),
       .eval_dataset = etude::Dataset(etude::ImageFolder(root / "test", test_format)),
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
