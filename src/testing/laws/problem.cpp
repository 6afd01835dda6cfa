#include "etude/testing/laws/problem.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/loss.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "etude/io/file_system.hpp"
#include "etude/io/launch.hpp"
#include "etude/metrics/accuracy.hpp"

namespace etude::inline v0::laws::detail {

namespace {

/// A file system that doesn't sync to disk, for speed.
class QuickFiles final : public FileSystem {
 public:
  std::unique_ptr<OutputFile> create(const std::filesystem::path& path) override {
    return std::make_unique<File>(path);
  }
  void sync(const std::filesystem::path&) override {}

 private:
  struct File final : OutputFile {
    explicit File(const std::filesystem::path& path) : out(path, std::ios::binary) { check(); }
    void write(std::span<const std::byte> bytes) override {
      out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
      check();
    }
    void finish() override {
      out.close();
      check();
    }
    void check() const {
      if (!out) throw CheckpointError("a file of the laws' temporary folder can't be written");
    }
    std::ofstream out;
  };
};

}  // namespace

NetImpl::NetImpl(std::function<void(bool)> at_forward_)
    : at_forward(std::move(at_forward_)),
      first(register_module("first", torch::nn::Linear(16, 6))),
      last(register_module("last", torch::nn::Linear(6, 3))),
      norm(register_module("norm", torch::nn::BatchNorm1d(6))),
      still(register_module("still", torch::nn::BatchNorm1d(6))),
      dropout(register_module("dropout", torch::nn::Dropout(0.3))) {}

torch::Tensor NetImpl::forward(const torch::Tensor& images) {
  at_forward(is_training());
  return last(dropout(still(norm(first(images.flatten(1))).relu())));
}

std::pair<torch::Tensor, torch::Tensor> images(std::int64_t count, std::uint64_t seed) {
  auto own = at::detail::createCPUGenerator(seed);
  auto inputs = torch::randn({count, 1, 4, 4}, own);
  auto labels = inputs.flatten(1).slice(1, 0, 3).argmax(1);
  return {std::move(inputs), std::move(labels)};
}

TrainerOptions problem(const std::filesystem::path& folder, bool saves,
                       std::function<void(bool)> at_forward) {
  // Each process gets the same number of examples, since a batch norm can't train on a single one.
  const auto [inputs, labels] = images(10 * find_launch().world_size, 1);
  const auto [eval_inputs, eval_labels] = images(5, 2);
  return {
      .model_init = [at_forward = std::move(at_forward)] { return std::make_shared<NetImpl>(at_forward); },
      .args = {.output_dir = folder.string(),
               .per_device_train_batch_size = 2,
               .per_device_eval_batch_size = 2,
               .gradient_accumulation_steps = 2,
               .num_train_epochs = 2,
               .learning_rate = 0.02,
               .weight_decay = 0.01,
               .eval_strategy = IntervalStrategy::steps,
               .eval_steps = 1,
               .save_strategy = saves ? SaveStrategy::steps : SaveStrategy::no,
               .save_steps = 1,
               .logging_steps = 1,
               .log_level = LogLevel::critical,
               .disable_tqdm = true,
               .use_cpu = true},
      .loss = torch::nn::CrossEntropyLoss(),
      .train_dataset = {inputs, labels},
      .eval_dataset = {eval_inputs, eval_labels},
      .compute_metrics = metrics::accuracy,
      .file_system = std::make_shared<QuickFiles>()};
}

torch::Tensor unlabelled() { return images(3, 3).first; }

}  // namespace etude::inline v0::laws::detail
