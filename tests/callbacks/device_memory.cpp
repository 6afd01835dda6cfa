#include "etude/callbacks/device_memory.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "common/logged.hpp"
#include "common/toy.hpp"

namespace callbacks_device_memory_test {

constexpr std::int64_t megabyte = 1 << 20;

/// Memory that is resident, because it is written to.
torch::Tensor megabytes(std::int64_t count) { return torch::ones({count * megabyte}, torch::kByte); }

/// Keeps some memory from the first step or batch on, and temporarily uses more.
struct Uses {
  std::int64_t keeps = 0, borrows = 0;
  torch::Tensor kept = {};
  void on(const etude::StepEnd&) { use(); }
  void on(const etude::PredictionStep&) { use(); }

 private:
  void use() {
    if (kept.defined()) return;
    kept = megabytes(keeps);
    megabytes(borrows);
  }
};

double in_megabytes(double bytes) { return bytes / static_cast<double>(megabyte); }

TEST_CASE("the process's memory is measured, and its peak can be reset") {
  const auto before = etude::resident_memory();
  CHECK(before > 10 * megabyte);
  auto more = megabytes(200);
  CHECK(etude::resident_memory() > before + 150 * megabyte);
  more.reset();
  CHECK(etude::resident_memory() < before + 100 * megabyte);
  CHECK(etude::peak_resident_memory() > before + 150 * megabyte);
  if (etude::reset_peak_resident_memory()) CHECK(etude::peak_resident_memory() < before + 100 * megabyte);
  CHECK_FALSE(etude::device_memory(torch::kCPU));
}

TEST_CASE("each log of training steps has the memory") {
  auto args = toy::arguments();
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 2;
  args.eval_strategy = etude::IntervalStrategy::steps;
  args.eval_steps = 2;
  etude::Trainer<Uses, etude::DeviceMemoryMonitor> trainer(toy::options(args, 4),
                                                           Uses{.keeps = 100, .borrows = 100});
  const double before = static_cast<double>(etude::resident_memory()) / 1e9;
  trainer.train();
  const auto& state = trainer.state();
  CHECK(toy::logged_at(state, "memory/resident_mem") == std::vector{2, 4});
  CHECK(toy::logged(state, "memory/resident_mem").at(0) > before + .08);
  CHECK(toy::logged(state, "memory/resident_mem").at(0) < before + .18);
  CHECK(toy::logged(state, "memory/peak_resident_mem").at(0) > before + .18);
  CHECK_FALSE(toy::logged_any(state, "memory/current_allocated_mem"));
}

TEST_CASE("training and evaluation report memory that they kept and used temporarily") {
  using Trainer = etude::Trainer<etude::MemoryMetricsCallback, Uses>;
  const Uses uses{.keeps = 100, .borrows = 150};
  Trainer training(toy::options(toy::arguments()), uses);
  const auto metrics = training.train().metrics;
  CHECK(in_megabytes(metrics.at("train_mem_cpu_alloc_delta")) > 90);
  CHECK(in_megabytes(metrics.at("train_mem_cpu_alloc_delta")) < 140);
  CHECK(in_megabytes(metrics.at("train_mem_cpu_peaked_delta")) > 120);
  CHECK(in_megabytes(metrics.at("train_mem_cpu_peaked_delta")) < 190);
  CHECK_FALSE(metrics.contains("train_mem_gpu_alloc_delta"));
  CHECK(toy::logged_any(training.state(), "train_mem_cpu_alloc_delta"));

  Trainer evaluating(toy::options(toy::arguments()), uses);
  const auto found = evaluating.evaluate();
  CHECK(in_megabytes(found.at("eval_mem_cpu_alloc_delta")) > 90);
  CHECK(in_megabytes(found.at("eval_mem_cpu_peaked_delta")) > 120);
  Trainer predicting(toy::options(toy::arguments()), uses);
  const auto predicted = predicting.predict(toy::dataset(1)).metrics;
  CHECK(in_megabytes(predicted.at("test_mem_cpu_alloc_delta")) > 90);
}

TEST_CASE("the memory of the construction is reported once, in the first metrics") {
  auto options = toy::options(toy::arguments());
  options.model = {};
  torch::Tensor made;
  options.model_init = [&] {
    made = megabytes(100);
    return etude::Model(toy::Line());
  };
  etude::Trainer<etude::MemoryMetricsCallback> trainer(options);
  const auto first = trainer.evaluate();
  CHECK(in_megabytes(first.at("init_mem_cpu_alloc_delta")) > 90);
  CHECK(first.at("before_init_mem_cpu") > 0);
  CHECK(first.contains("init_mem_cpu_peaked_delta"));
  CHECK(first.contains("eval_mem_cpu_alloc_delta"));
  const auto second = trainer.evaluate();
  CHECK_FALSE(second.contains("init_mem_cpu_alloc_delta"));
  CHECK_FALSE(second.contains("before_init_mem_cpu"));
}

TEST_CASE("an evaluation during training has no memory metrics of its own, and doesn't end the training's") {
  auto args = toy::arguments();
  args.eval_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<etude::MemoryMetricsCallback, Uses> trainer(toy::options(args), Uses{.keeps = 100});
  const auto metrics = trainer.train().metrics;
  CHECK_FALSE(toy::logged_any(trainer.state(), "eval_mem"));
  CHECK(in_megabytes(metrics.at("train_mem_cpu_alloc_delta")) > 90);
  CHECK(trainer.evaluate().contains("eval_mem_cpu_alloc_delta"));
}

}  // namespace callbacks_device_memory_test
