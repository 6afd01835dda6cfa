#include "etude/callbacks/throughput.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "common/logged.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace callbacks_throughput_test {

/// Sleeps where configured.
struct Sleeper {
  std::chrono::milliseconds fetching{}, forward{}, evaluating{}, first_step{};
  void on(const etude::BatchFetched&) const { std::this_thread::sleep_for(fetching); }
  void on(const etude::ForwardBegin& e) const {
    std::this_thread::sleep_for(e.state.global_step == 0 ? first_step : forward);
  }
  void on(const etude::PredictionStep&) const { std::this_thread::sleep_for(evaluating); }
};

/// Eight steps with two micro-batches each; a micro-batch has two examples.
etude::TrainingArguments arguments() {
  auto args = toy::arguments();
  args.per_device_train_batch_size = 2;
  args.gradient_accumulation_steps = 2;
  args.num_train_epochs = 2;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 4;
  return args;
}

etude::TrainerState after_training(const etude::TrainingArguments& args, Sleeper sleeper,
                                   const etude::ThroughputMonitor& monitor) {
  etude::Trainer<Sleeper, etude::ThroughputMonitor> trainer(toy::options(args, 16), sleeper, monitor);
  trainer.train();
  return trainer.state();
}

using namespace std::chrono_literals;

TEST_CASE("the counts have the right ratios") {
  etude::ThroughputMonitor monitor{.flops_per_sample = 1e6, .peak_flops = 1e9};
  monitor.count_tokens = [](const etude::Batch& batch) { return 5 * batch.size; };
  const auto state = after_training(arguments(), {}, monitor);
  CHECK(toy::logged_at(state, "throughput/batches_per_sec") == std::vector{4, 8});
  for (std::size_t i = 0; i < 2; ++i) {
    const auto value = [&](const char* name) { return toy::logged(state, name).at(i); };
    const double steps = value("throughput/batches_per_sec");
    CHECK(steps > 0);
    CHECK(value("throughput/samples_per_sec") == doctest::Approx(4 * steps));
    CHECK(value("throughput/tokens_per_sec") == doctest::Approx(20 * steps));
    CHECK(value("throughput/flops_per_sec") == doctest::Approx(4e6 * steps));
    CHECK(value("throughput/mfu") == doctest::Approx(4e6 * steps / 1e9));
    CHECK(value("time/data_wait") + value("time/compute") == doctest::Approx(1 / steps));
    CHECK(value("throughput/data_wait_fraction") == doctest::Approx(value("time/data_wait") * steps));
  }
}

TEST_CASE("unknown values aren't logged") {
  const auto state = after_training(arguments(), {}, {});
  CHECK(toy::logged_any(state, "throughput/samples_per_sec"));
  for (const char* name : {"throughput/tokens_per_sec", "throughput/flops_per_sec", "throughput/mfu"})
    CHECK_FALSE(toy::logged_any(state, name));
}

TEST_CASE("waiting for data is separated from computing") {
  auto state = after_training(arguments(), {.fetching = 20ms}, {});
  CHECK(toy::logged(state, "time/data_wait").at(0) >= .02);
  // The second micro-batch of each group was fetched with the first.
  CHECK(toy::logged(state, "throughput/data_wait_fraction").at(0) < .6);
  state = after_training(arguments(), {.forward = 20ms, .first_step = 20ms}, {});
  CHECK(toy::logged(state, "time/compute").at(0) >= .04);
  CHECK(toy::logged(state, "time/data_wait").at(0) < .02);
}

TEST_CASE("evaluation time is excluded") {
  auto args = arguments();
  args.eval_strategy = etude::IntervalStrategy::steps;
  args.eval_steps = 1;
  const auto state = after_training(args, {.evaluating = 100ms}, {});
  CHECK(toy::logged(state, "eval_runtime").at(0) >= .1);
  CHECK(toy::logged(state, "throughput/batches_per_sec").at(1) >
        20);  // with evaluations it would be below 10
}

TEST_CASE("the time of writing checkpoints is excluded") {
  const toy::Folder folder;
  auto args = arguments();
  toy::save_to(folder, args);
  auto options = toy::options(args, 16);
  options.push = [](const std::filesystem::path&) { std::this_thread::sleep_for(100ms); };
  etude::Trainer<etude::ThroughputMonitor> trainer(options);
  trainer.train();
  CHECK(toy::logged(trainer.state(), "throughput/batches_per_sec").at(1) > 20);
}

TEST_CASE("old steps leave the window") {
  const auto state = after_training(arguments(), {.first_step = 300ms}, {.window_size = 2});
  CHECK(toy::logged(state, "throughput/batches_per_sec").at(1) > 20);
  const auto whole = after_training(arguments(), {.first_step = 300ms}, {});
  CHECK(toy::logged(whole, "throughput/batches_per_sec").at(1) < 8 / .6);
}

TEST_CASE("tokens are the elements of the main input, which must exist") {
  auto options = toy::options(arguments());
  options.train_dataset = {etude::Tensors({torch::ones({16, 1})}, {"input_ids"}), torch::ones({16, 1})};
  etude::Trainer<etude::ThroughputMonitor> trainer(options,
                                                   etude::ThroughputMonitor{.main_input_name = "input_ids"});
  trainer.train();
  CHECK(toy::logged(trainer.state(), "throughput/tokens_per_sec").at(0) ==
        doctest::Approx(toy::logged(trainer.state(), "throughput/samples_per_sec").at(0)));
  CHECK_THROWS_AS(after_training(arguments(), {}, {.main_input_name = "input_ids"}), etude::DataError);
}

TEST_CASE("the operations per token of a transformer follow PaLM") {
  // GPT-3 of 175e9 parameters, 96 layers, 96 heads of 128, 2048 tokens: 6 * 175e9 + 12 * 96 * 96 * 128 *
  // 2048.
  CHECK(etude::transformer_flops_per_token(175e9, 96, 96, 128, 2048) == 1'078'991'029'248.0);
}

TEST_CASE("unsupported options and inputs are refused by name") {
  const auto refused = [](const etude::ThroughputMonitor& monitor, const char* words) {
    CHECK_THROWS_WITH_AS(after_training(arguments(), {}, monitor), words, etude::ArgumentError);
  };
  refused({.window_size = 0}, "window_size is 0: must be at least 1");
  refused({.flops_per_sample = -1}, "flops_per_sample is -1: must be at least 0 and finite");
  refused({.peak_flops = 1e12}, "peak_flops is 1000000000000: needs flops_per_sample");
}

}  // namespace callbacks_throughput_test
