#include "etude/loop/write_checkpoint.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "common/fault_of.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "etude/checkpoint/resume.hpp"
#include "etude/checkpoint/resume_point.hpp"
#include "etude/io/folder.hpp"
#include "etude/loop/core.hpp"
#include "etude/optim/create.hpp"
#include "etude/optim/named_optimizer.hpp"
#include "etude/optim/rules/adam.hpp"
#include "etude/optim/rules/sgd.hpp"
#include "etude/trainer.hpp"

namespace loop_write_checkpoint_test {

torch::Tensor named(const etude::StateDict& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &etude::NamedTensor::first);
  return found == tensors.end() ? torch::Tensor() : found->second;
}

// A training of y = wx + b at step 1, with one optimizer for the weight and another for the bias.
struct Two {
  explicit Two(const std::string& folder) {
    auto args = toy::arguments();
    args.output_dir = folder;
    args.gradient_accumulation_steps = 2;
    core.options = toy::options(args, 4);
    core.initialise([](const etude::TrainingArguments&) { return std::make_shared<etude::Communicator>(); });
    const auto parameters = core.model.named_parameters();
    REQUIRE(parameters.size() == 2);
    add("slope", std::make_unique<etude::SGD>(std::vector{etude::ParameterGroup{{parameters[0]}, 0.1, {}}},
                                              etude::SGDOptions{.momentum = 0.9}));
    add("offset",
        std::make_unique<etude::AdamW>(std::vector{etude::ParameterGroup{{parameters[1]}, 0.5, {}}}));
    core.accumulation.begin_epoch(0);
  }

  void add(std::string name, std::unique_ptr<etude::Optimizer> optimizer) {
    auto lr_scheduler = etude::make_scheduler(core.args, *optimizer, 10);
    core.optimizers.add({std::move(name), std::move(optimizer), std::move(lr_scheduler)});
  }

  // Makes one step with these gradients, and then half a group with half of them.
  void train(float slope, float offset) {
    const auto parameters = core.model.named_parameters();
    const auto set = [&](float factor) {
      parameters[0].second.mutable_grad() = torch::full_like(parameters[0].second, slope * factor);
      parameters[1].second.mutable_grad() = torch::full_like(parameters[1].second, offset * factor);
    };
    set(1);
    for (auto& each : core.optimizers) {
      each.optimizer->step();
      each.lr_scheduler->step();
    }
    core.optimizers.zero_grad();
    set(0.5F);
    core.state.global_step = 1;
    core.group.add_loss(torch::zeros({}));
    core.progress.loop = {etude::TrainingStage::epochs, etude::EpochStage::steps};
    core.progress.position.micro_batches = 1;
  }

  etude::TrainerCore core;
};

TEST_CASE("a checkpoint has the files of each named optimizer, and one accumulation of all") {
  const toy::Folder folder;
  Two two(folder);
  two.train(2, -4);
  const auto checkpoint = etude::write_checkpoint(two.core, {}, {});
  for (const char* file : {"optimizer.slope.safetensors", "optimizer.slope.json", "scheduler.slope.json",
                           "optimizer.offset.safetensors", "optimizer.offset.json", "scheduler.offset.json"})
    CHECK(std::filesystem::exists(checkpoint / file));
  CHECK_FALSE(std::filesystem::exists(checkpoint / "optimizer.safetensors"));

  etude::FolderReader reader(checkpoint);
  const auto point = etude::read_resume_point(reader);
  REQUIRE(point.optimizers.size() == 2);
  const auto &slope = point.optimizers.at("slope"), &offset = point.optimizers.at("offset");
  // SGD's first momentum is the gradient, AdamW's first mean a tenth of it.
  CHECK(named(*slope.state, "weight.momentum_buffer").item<float>() == 2);
  CHECK(named(*offset.state, "bias.exp_avg").item<float>() == doctest::Approx(-0.4));
  CHECK(slope.options->at("type") == "SGD");
  CHECK(offset.options->at("type") == "AdamW");
  CHECK(slope.scheduler->at("step_count") == std::vector<double>{1});
  CHECK(named(point.half_done, "gradients.weight").item<float>() == 1);
  CHECK(named(point.half_done, "gradients.bias").item<float>() == -2);
}

TEST_CASE("a training without the checkpoint's named optimizers says which of their states it doesn't use") {
  const toy::Folder folder;
  Two two(folder);
  two.train(2, -4);
  const auto checkpoint = etude::write_checkpoint(two.core, {}, {});
  auto options = toy::options(two.core.options.args, 4);
  options.args.log_level = etude::LogLevel::warning;
  const auto warnings = toy::printed(
      [&] { etude::Trainer<>(std::move(options)).train({.resume_from_checkpoint = checkpoint}); },
      STDERR_FILENO);
  CHECK(toy::contains(warnings, "checkpoint-1: optimizer state is missing: it starts from scratch"));
  for (const char* name : {"slope", "offset"})
    CHECK(
        toy::contains(warnings, fmt::format("checkpoint-1: the state of its optimizer '{}' isn't used: this "
                                            "training has none of that name",
                                            name)));
}

TEST_CASE("the files of an optimizer are named after it, and plainly if it has no name") {
  CHECK(etude::optimizer_file("optimizer.safetensors", "") == "optimizer.safetensors");
  CHECK(etude::optimizer_file("optimizer.safetensors", "generator") == "optimizer.generator.safetensors");
}

}  // namespace loop_write_checkpoint_test
