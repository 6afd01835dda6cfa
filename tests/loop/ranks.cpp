#include "etude/loop/ranks.hpp"

#include <doctest/doctest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "common/folder.hpp"
#include "common/logged.hpp"
#include "common/ranks.hpp"
#include "common/sines.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/convert_sync_batch_norm.hpp"
#include "etude/callbacks/metric_callback.hpp"
#include "etude/callbacks/predictions_to_csv.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/metrics/accuracy.hpp"
#include "etude/metrics/streaming.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"
#include "etude/trainer.hpp"

namespace loop_ranks_test {

using etude::DistributedDataParallel;
using etude::IntervalStrategy;
using toy::logged;
using toy::sines::check_close;
using toy::sines::check_resumed;
using toy::sines::examples;
using toy::sines::net;
using toy::sines::stage;
using toy::sines::weights;

etude::TrainerOptions problem(std::int64_t count, std::int64_t batch, std::int64_t group) {
  return toy::sines::problem(net(), toy::sines::arguments(batch, group), count);
}

void check_close(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-5));
}

TEST_CASE("in two processes, each label of a model's own loss is weighted equally") {
  if (toy::launches(2)) return;
  const auto rows = toy::rows_with_ignored_labels();
  for (const auto items : {etude::LossItems::labels, etude::LossItems::shifted_labels}) {
    const auto options = [&](std::int64_t batch) {
      auto args = toy::arguments();
      args.per_device_train_batch_size = batch;
      args.optim = etude::OptimizerNames::sgd;
      args.max_grad_norm = 0;
      args.train_sampling_strategy = etude::SamplingStrategy::sequential;
      return etude::TrainerOptions{.model = toy::Rows(items),
                                   .args = args,
                                   .train_dataset = etude::Dataset(std::get<0>(rows), std::get<1>(rows))};
    };
    etude::Trainer<DistributedDataParallel> ours(options(3));
    const double loss = ours.train().training_loss;
    const toy::Alone alone;
    etude::Trainer<> whole(options(6));
    CHECK(loss == doctest::Approx(whole.train().training_loss));
    check_close(weights(ours), weights(whole), 1e-6);
    CHECK(weights(whole)[0].item<double>() != 0);
  }
}

TEST_CASE("two processes train as one with batches twice as large, for random sizes and uneven ends") {
  if (toy::launches(2)) return;
  std::mt19937 random(5);
  for (int trial = 0; trial < 12; ++trial) {
    const std::int64_t batch = 1 + random() % 4, group = 1 + random() % 3, count = 1 + random() % 40;
    CAPTURE(batch);
    CAPTURE(group);
    CAPTURE(count);
    etude::Trainer<DistributedDataParallel> together(problem(count, batch, group));
    together.train();
    const toy::Alone alone;
    etude::Trainer<> one(problem(count, batch * 2, group));
    one.train();
    CHECK(together.state().global_step == one.state().global_step);
    check_close(weights(together), weights(one), 1e-5);
    check_close(logged(together.state(), "loss"), logged(one.state(), "loss"));
    check_close(logged(together.state(), "grad_norm"), logged(one.state(), "grad_norm"));
    CHECK(together.state().epoch == one.state().epoch);
  }
}

TEST_CASE("four processes agree to the bit, and train as one with batches four times as large") {
  if (toy::launches(4)) return;
  etude::Trainer<DistributedDataParallel> together(problem(45, 3, 2));
  together.train();
  for (const auto& tensor : weights(together)) {
    const auto all = together.context().trainer.communicator().gather(tensor.contiguous());
    for (std::int64_t i = 0; i < 4; ++i) CHECK(torch::equal(all[i], tensor));
  }
  const toy::Alone alone;
  etude::Trainer<> one(problem(45, 12, 2));
  one.train();
  check_close(weights(together), weights(one), 1e-5);
}

TEST_CASE("two processes that compute activations again train to the bit as without") {
  if (toy::launches(2)) return;
  for (const bool bf16 : {false, true}) {
    const auto trained = [&](bool recomputes) {
      auto options = problem(45, 3, 2);
      options.args.bf16 = bf16;
      options.args.gradient_checkpointing = recomputes;
      etude::Trainer<DistributedDataParallel> trainer(options);
      trainer.train();
      return weights(trainer);
    };
    const auto plain = trained(false), recomputed = trained(true);
    for (std::size_t i = 0; i < plain.size(); ++i) CHECK(torch::equal(plain[i], recomputed[i]));
  }
}

TEST_CASE("two processes in pure bf16 agree to the bit, with and without shares of the optimizer's state") {
  if (toy::launches(2)) return;
  const auto trained = [](auto policy, const std::string& rounding, std::int64_t batch) {
    auto options = problem(44, batch, 1);
    options.args.pure_bf16 = true;
    options.args.optim_args = "rounding=" + rounding;
    etude::Trainer<decltype(policy)> trainer(options);
    trainer.train();
    return weights(trainer);
  };
  for (const std::string rounding : {"kahan", "stochastic"}) {
    CAPTURE(rounding);
    const auto whole = trained(DistributedDataParallel(), rounding, 4);
    const auto shared = trained(etude::ShardedDataParallel<1>(), rounding, 4);
    const auto halves = trained(etude::ShardedDataParallel<2>(), rounding, 4);
    const toy::Alone alone;
    const auto one = trained(etude::SingleProcess(), rounding, 8);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      CHECK((whole[i].scalar_type() == torch::kBFloat16));
      CHECK(torch::equal(whole[i], shared[i]));
      CHECK(torch::equal(whole[i], halves[i]));
    }
    check_close(whole, one, 0.05);
  }
}

TEST_CASE("a checkpoint of pure bf16 with shares of the optimizer's state continues to the bit") {
  if (!toy::is_rank()) {
    const toy::Folder folder;
    CHECK(toy::launches(2, {"ETUDE_TEST_FOLDER=" + std::string(folder)}));
    return;
  }
  const std::string folder = std::getenv("ETUDE_TEST_FOLDER");
  auto options = problem(40, 4, 1);
  options.args.pure_bf16 = true;
  toy::save_to(folder, options.args, 5);
  etude::Trainer<etude::ShardedDataParallel<1>> whole(options);
  whole.train();
  options.model = net();
  etude::Trainer<etude::ShardedDataParallel<1>> resumed(options);
  resumed.train({.resume_from_checkpoint = folder + "/checkpoint-5"});
  const auto expected = weights(whole), found = weights(resumed);
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(torch::equal(expected[i], found[i]));
}

template <class Policy>
void check_sharded(etude::OptimizerNames optim, std::int64_t group) {
  auto sharded_options = problem(45, 3, group), options = problem(45, 3 * toy::world_size(), group);
  sharded_options.args.optim = options.args.optim = optim;
  etude::Trainer<Policy> sharded(sharded_options);
  sharded.train();
  const toy::Alone alone;
  etude::Trainer<> one(options);
  one.train();
  check_close(weights(sharded), weights(one), 1e-5);
  check_close(logged(sharded.state(), "grad_norm"), logged(one.state(), "grad_norm"));
}

TEST_CASE("processes with shares of the optimizer's state and of the gradients train as one") {
  if (toy::launches(3)) return;
  for (const auto optim : {etude::OptimizerNames::adamw_torch_fused, etude::OptimizerNames::sgd}) {
    check_sharded<etude::ShardedDataParallel<1>>(optim, 2);
    check_sharded<etude::ShardedDataParallel<2>>(optim, 2);
  }
}

/// Trains in fp16. The gradients of some examples overflow, all of them in the second process.
template <class Policy>
void overflow_in_one() {
  const auto line = [] {
    torch::manual_seed(3);
    return torch::nn::Sequential(torch::nn::Linear(5, 3));
  };
  auto options = problem(16, 4, 1);
  options.model = line();
  options.args.fp16 = true;
  options.args.learning_rate = 1e-3;
  options.args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  const auto rows = torch::arange(16 * 5).to(torch::kFloat).reshape({16, 5}).sin();
  rows.slice(0, 12) *= 3e4;
  options.train_dataset = {rows, torch::arange(16).remainder(3)};
  etude::Trainer<Policy> together(options);
  const auto output = together.train();
  const double skipped = output.metrics.at("skipped_steps");
  CHECK(skipped >= 1);
  CHECK(static_cast<double>(output.global_step) + skipped == 4);
  const std::vector<torch::Tensor> trained = weights(together);
  for (const auto& tensor : trained) {
    const auto all = together.context().trainer.communicator().gather(tensor.contiguous());
    CHECK(torch::equal(all[0], all[1]));
    CHECK(torch::isfinite(tensor).all().item<bool>());
  }
  const toy::Alone alone;
  options.model = line();
  options.args.per_device_train_batch_size = 8;
  etude::Trainer<> one(options);
  CHECK(one.train().metrics.at("skipped_steps") == skipped);
  check_close(trained, weights(one), 1e-3);
}

TEST_CASE("an update of fp16 that overflows in one process is skipped in all, with and without shards") {
  if (!etude::computes_in_float16(torch::kCPU)) {
    MESSAGE("this LibTorch doesn't compute in float16 on the CPU");
    CHECK(true);
    return;
  }
  if (toy::launches(2)) return;
  overflow_in_one<DistributedDataParallel>();
  overflow_in_one<etude::ShardedDataParallel<1>>();
  overflow_in_one<etude::ShardedDataParallel<2>>();
}

TEST_CASE("a StopTraining in one process gives up a step whose gradients are in shards") {
  if (toy::launches(2)) return;
  auto options = problem(40, 2, 3);
  options.loss = {};
  options.compute_loss = toy::sines::loss_that_stops(5, "enough on rank 1");
  etude::Trainer<etude::ShardedDataParallel<2>> trainer(options);
  CHECK(trainer.train().stop_reason == "enough on rank 1");
  CHECK(trainer.state().global_step == 1);
}

TEST_CASE("an optimizer that needs whole parameters is refused with shards") {
  if (toy::launches(2)) return;
  auto options = problem(8, 2, 1);
  options.args.optim = etude::OptimizerNames::adafactor;
  etude::Trainer<etude::ShardedDataParallel<1>> trainer(options);
  try {
    trainer.train();
    FAIL("no exception");
  } catch (const std::exception& error) {  // may say that another process left for that reason
    CHECK(std::string(error.what()).find("the optimizer is Adafactor: optim must be one of adamw_torch") !=
          std::string::npos);
  }
}

TEST_CASE("a loss that counts items is divided by those of all processes") {
  if (toy::launches(2)) return;
  const auto with_gaps = [](std::int64_t batch) {
    auto options = problem(23, batch, 2);
    const auto rows = torch::sin(torch::arange(115).to(torch::kFloat).reshape({23, 5}));
    auto labels = torch::arange(23).remainder(3);
    for (const std::int64_t i : {1, 2, 3, 8, 9, 15, 20, 21}) labels[i] = -100;
    options.train_dataset = {rows, labels};
    options.loss = {};
    options.compute_loss = [](etude::Model& model, const etude::Batch& of, std::optional<double> items) {
      auto outputs = model.forward(of);
      auto loss =
          torch::nn::functional::cross_entropy(
              outputs, of.labels, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum)) /
          *items;
      return etude::LossOutput{loss, outputs, true};
    };
    return options;
  };
  etude::Trainer<DistributedDataParallel> together(with_gaps(3));
  together.train();
  const toy::Alone alone;
  etude::Trainer<> one(with_gaps(6));
  one.train();
  check_close(weights(together), weights(one), 1e-5);
  check_close(logged(together.state(), "loss"), logged(one.state(), "loss"));
}

TEST_CASE("an evaluation and a prediction give the same as in one process, in order and without padding") {
  for (const std::int64_t world : {2, 4}) {
    if (toy::launches(world)) continue;
    if (toy::world_size() != world) continue;
    for (const std::int64_t count : {1, 3, 11, 16}) {
      CAPTURE(count);
      const auto options = [&] {
        auto result = problem(8, 2, 1);
        result.eval_dataset = examples(count);
        result.compute_metrics = [](const etude::EvalPrediction& p) {
          // Depends on the order of the examples.
          const auto places = torch::arange(1, p.label_ids[0].size(0) + 1).to(torch::kDouble);
          return etude::Metrics{
              {"score", (p.predictions[0].sum(1).to(torch::kDouble) * places).sum().item<double>()},
              {"rows", static_cast<double>(p.predictions[0].size(0))}};
        };
        return result;
      };
      auto given = options();
      given.args.per_device_eval_batch_size = 2;
      etude::Trainer<DistributedDataParallel> together(given);
      const auto metrics = together.evaluate();
      const auto output = together.predict(examples(count));
      const toy::Alone alone;
      etude::Trainer<> one(options());
      const auto expected = one.evaluate();
      CHECK(metrics.at("eval_rows") == static_cast<double>(count));
      CHECK(metrics.at("eval_loss") == doctest::Approx(expected.at("eval_loss")).epsilon(1e-6));
      CHECK(metrics.at("eval_score") == doctest::Approx(expected.at("eval_score")).epsilon(1e-6));
      CHECK(torch::allclose(output.predictions[0], one.predict(examples(count)).predictions[0], 1e-5, 1e-6));
    }
  }
}

/// Makes the given request in one process at the end of a step.
struct AskAt {
  std::int64_t rank = 0, step = 0;
  bool etude::TrainerControl::*what = nullptr;
  void on(const etude::StepEnd& e) {
    if (e.args.process_index() == rank && e.state.global_step == step && what) e.control.*what = true;
  }
};

TEST_CASE("the request of one process is that of all") {
  if (toy::launches(2)) return;
  for (const auto what :
       {&etude::TrainerControl::should_training_stop, &etude::TrainerControl::should_evaluate,
        &etude::TrainerControl::should_log, &etude::TrainerControl::should_epoch_stop}) {
    auto options = problem(20, 2, 1);
    options.args.logging_strategy = IntervalStrategy::no;
    etude::Trainer<DistributedDataParallel, AskAt, toy::Recorder> trainer(options, AskAt{1, 3, what});
    const auto output = trainer.train();
    const auto& recorder = trainer.callback<toy::Recorder>();
    if (what == &etude::TrainerControl::should_training_stop) {
      CHECK(trainer.state().global_step == 3);
      CHECK(output.stop_reason == "a callback set should_training_stop");
    }
    if (what == &etude::TrainerControl::should_epoch_stop) CHECK(trainer.state().global_step == 8);
    if (what == &etude::TrainerControl::should_evaluate) CHECK(recorder.count("Evaluate") == 1);
    if (what == &etude::TrainerControl::should_log) CHECK(logged(trainer.state(), "loss").size() == 1);
  }
}

struct StopsIn {
  template <class Event>
  static void stop(const Event& e) {
    if (e.args.process_index() == 1 && e.state.global_step == 3)
      throw etude::StopTraining("enough on rank 1");
  }
};
template <class Event>
struct StopsInEvent : StopsIn {
  void on(const Event& e) { stop(e); }
};

template <class Event>
void check_stops_in(std::int64_t steps) {
  auto options = problem(20, 2, 1);
  options.args.eval_strategy = IntervalStrategy::steps;
  options.args.eval_steps = 3;
  etude::Trainer<DistributedDataParallel, StopsInEvent<Event>> trainer(options);
  const auto output = trainer.train();
  CHECK(output.stop_reason == "enough on rank 1");
  CHECK(trainer.state().global_step == steps);
}

TEST_CASE("a StopTraining that a callback throws in one process stops all") {
  if (toy::launches(2)) return;
  check_stops_in<etude::BatchFetchBegin>(3);
  check_stops_in<etude::StepBegin>(3);
  check_stops_in<etude::ForwardBegin>(3);
  check_stops_in<etude::BackwardEnd>(3);
  check_stops_in<etude::StepEnd>(3);
  check_stops_in<etude::EvaluateBegin>(3);
  check_stops_in<etude::PredictionStep>(3);
  check_stops_in<etude::Evaluate>(3);
  check_stops_in<etude::Log>(3);
}

TEST_CASE("checkpoints that are written in the background are announced in all processes") {
  if (!toy::is_rank()) {
    const toy::Folder folder;
    CHECK(toy::launches(2, {"ETUDE_TEST_FOLDER=" + std::string(folder)}));
    return;
  }
  auto options = problem(20, 2, 1);
  toy::save_to(std::getenv("ETUDE_TEST_FOLDER"), options.args, 2);
  options.args.save_async = true;
  etude::Trainer<DistributedDataParallel, toy::Recorder> trainer(options);
  trainer.train();
  CHECK(trainer.callback<toy::Recorder>().count("Save") == 5);
}

TEST_CASE("a MetricCallback has the metrics of all processes") {
  if (toy::launches(2)) return;
  auto options = problem(20, 2, 1);
  options.eval_dataset = examples(1);
  using Callback = etude::MetricCallback<etude::metrics::Accuracy>;
  for (const std::int64_t count : {1, 7, 30}) {
    options.eval_dataset = examples(count);
    options.args.per_device_eval_batch_size = 2;
    etude::Trainer<DistributedDataParallel, Callback> together(options);
    const auto metrics = together.evaluate();
    const toy::Alone alone;
    etude::Trainer<Callback> one(options);
    const auto expected = one.evaluate();
    CHECK(metrics.at("eval_accuracy") == doctest::Approx(expected.at("eval_accuracy")));
  }
}

/// The last fields of a CSV file's lines.
std::vector<std::string> targets_in(const std::string& text) {
  std::istringstream lines(text);
  std::vector<std::string> targets;
  for (std::string line; std::getline(lines, line);) targets.push_back(line.substr(line.rfind(',') + 1));
  return targets;
}

/// Counts the examples that it is given in this process.
struct OwnAccuracy : etude::metrics::Accuracy {
  void update(const at::Tensor& predictions, const at::Tensor& labels) {
    rows += labels.size(0);
    Accuracy::update(predictions, labels);
  }
  static inline std::int64_t rows = 0;
};

TEST_CASE("a streaming metric gets the batches of its process, and its state is merged with the others'") {
  if (toy::launches(2)) return;
  for (const bool by_batch : {true, false}) {
    auto options = problem(20, 2, 1);
    options.compute_metrics = etude::metrics::streaming(OwnAccuracy());
    options.args.batch_eval_metrics = by_batch;
    for (const std::int64_t count : {1, 7, 30}) {
      CAPTURE(count);
      options.eval_dataset = examples(count);
      options.args.per_device_eval_batch_size = 2;
      etude::Trainer<DistributedDataParallel> together(options);
      OwnAccuracy::rows = 0;
      const auto metrics = together.evaluate();
      if (by_batch) CHECK(OwnAccuracy::rows < std::max<std::int64_t>(count, 2));
      const toy::Alone alone;
      etude::Trainer<> one(options);
      CHECK(metrics.at("eval_accuracy") == doctest::Approx(one.evaluate().at("eval_accuracy")));
    }
  }
}

TEST_CASE("predictions of all processes are in one CSV file, in the order of the dataset") {
  if (!toy::is_rank()) {
    const toy::Folder folder;
    CHECK(toy::launches(2, {"ETUDE_TEST_FOLDER=" + std::string(folder)}));
    return;
  }
  const std::string folder = std::getenv("ETUDE_TEST_FOLDER");
  for (const std::int64_t count : {1, 2, 9}) {
    CAPTURE(count);
    auto options = problem(20, 2, 1);
    options.args.output_dir = folder + "/" + std::to_string(count);
    options.args.per_device_eval_batch_size = 2;
    options.eval_dataset = examples(count);
    etude::Trainer<DistributedDataParallel, etude::PredictionsToCSVCallback> together(options);
    together.evaluate();
    together.context().trainer.communicator().barrier();
    const auto text = toy::read_text(options.args.output_dir + "/eval_predictions.csv");
    options.args.output_dir += "-alone-" + std::to_string(toy::rank());
    const toy::Alone alone;
    etude::Trainer<etude::PredictionsToCSVCallback> one(options);
    one.evaluate();
    const auto expected = toy::read_text(options.args.output_dir + "/eval_predictions.csv");
    CHECK(std::ranges::count(text, '\n') == count + 1);
    CHECK(targets_in(text) == targets_in(expected));
  }
}

TEST_CASE("main_process_first lets the first process finish before the others begin") {
  if (!toy::is_rank()) {
    const toy::Folder folder;
    CHECK(toy::launches(2, {"ETUDE_TEST_FOLDER=" + std::string(folder)}));
    CHECK(etude::main_process_first([] { return 3; }) == 3);
    return;
  }
  const auto file = std::filesystem::path(std::getenv("ETUDE_TEST_FOLDER")) / "data";
  const bool found = etude::main_process_first([&] {
    const bool is_there = std::filesystem::exists(file);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::ofstream(file) << "converted";
    return is_there;
  });
  CHECK(found == (toy::rank() == 1));
  CHECK_THROWS_WITH_AS(etude::main_process_first([] {
                         if (toy::rank() == 0) throw etude::DataError("no such file");
                       }),
                       doctest::Contains("no such file"), etude::Error);
}

TEST_CASE("a request in a handler of a log in one process is that of all") {
  if (toy::launches(2)) return;
  struct AsksInLog {
    void on(const etude::Log& e) {
      const bool is_first = !std::exchange(has_heard, true);
      if (e.args.process_index() == 1 && is_first) e.control.should_evaluate = true;
    }
    bool has_heard = false;
  };
  etude::Trainer<DistributedDataParallel, AsksInLog, toy::Recorder> trainer(problem(20, 2, 1));
  trainer.train();
  CHECK(trainer.callback<toy::Recorder>().count("Evaluate") == 1);
}

TEST_CASE("a StopTraining of the model in one process gives up the step in all") {
  if (toy::launches(2)) return;
  auto options = problem(20, 2, 2);
  options.loss = {};
  options.compute_loss = toy::sines::loss_that_stops(5, "the loss on rank 1 is enough");
  etude::Trainer<DistributedDataParallel> trainer(options);
  CHECK(trainer.train().stop_reason == "the loss on rank 1 is enough");
  CHECK(trainer.state().global_step == 2);
}

TEST_CASE("memory that runs out in one process makes all start again with smaller batches") {
  if (toy::launches(2)) return;
  auto options = problem(32, 10, 1);
  options.args.auto_find_batch_size = true;
  options.loss = {};
  options.compute_loss = [](etude::Model& model, const etude::Batch& batch,
                            std::optional<double>) -> etude::LossOutput {
    if (toy::rank() == 1 && batch.size > 8) throw std::bad_alloc();
    auto outputs = model.forward(batch);
    return {torch::nn::functional::cross_entropy(outputs, batch.labels), outputs, false};
  };
  etude::Trainer<DistributedDataParallel> trainer(options);
  trainer.train();
  CHECK(trainer.args().per_device_train_batch_size == 8);
  CHECK(trainer.state().global_step == 4);
}

TEST_CASE("an exception in one process ends all, and each hears of it and of the end") {
  if (toy::launches(2)) return;
  auto options = problem(20, 2, 1);
  options.loss = {};
  options.compute_loss = [calls = 0](etude::Model& model, const etude::Batch& batch,
                                     std::optional<double>) mutable -> etude::LossOutput {
    if (++calls == 3 && toy::rank() == 1) throw std::runtime_error("the file is gone");
    auto outputs = model.forward(batch);
    return {torch::nn::functional::cross_entropy(outputs, batch.labels), outputs, false};
  };
  etude::Trainer<DistributedDataParallel, toy::Recorder> trainer(options);
  std::string what;
  try {
    trainer.train();
  } catch (const etude::CommunicationError& error) {
    CHECK(toy::rank() == 0);
    what = error.what();
    CHECK(what.starts_with("rank 0 of 2: "));
    CHECK(what.find("rank 1") != std::string::npos);
  } catch (const std::runtime_error& error) {
    CHECK(toy::rank() == 1);
    what = error.what();
  }
  CHECK(what.find("the file is gone") != std::string::npos);
  const auto& recorder = trainer.callback<toy::Recorder>();
  CHECK(recorder.count("TrainError") == 1);
  CHECK(recorder.count("TrainEnd") == 1);
  CHECK(recorder.count("EpochEnd") == 1);
}

TEST_CASE("batch norms that are converted use the batches of all processes") {
  if (toy::launches(2)) return;
  const auto options = [](std::int64_t batch) {
    auto result = problem(24, batch, 1);
    // The bias before a batch norm has a gradient of 0 apart from rounding, which Adam would enlarge.
    result.args.optim = etude::OptimizerNames::sgd;
    torch::manual_seed(3);
    result.model =
        torch::nn::Sequential(torch::nn::Linear(5, 7), torch::nn::BatchNorm1d(7), torch::nn::Linear(7, 3));
    return result;
  };
  etude::Trainer<DistributedDataParallel, etude::ConvertSyncBatchNormCallback> together(options(4));
  together.train();
  const toy::Alone alone;
  etude::Trainer<> one(options(8));
  one.train();
  check_close(weights(together), weights(one), 1e-4);
}

TEST_CASE("without the conversion, the buffers of all processes are those of the first") {
  if (toy::launches(2)) return;
  auto options = problem(24, 4, 1);
  options.model = torch::nn::Sequential(torch::nn::BatchNorm1d(5), torch::nn::Linear(5, 3));
  etude::Trainer<DistributedDataParallel> trainer(options);
  trainer.train();
  trainer.evaluate();
  for (const auto& [name, buffer] : trainer.model().named_buffers()) {
    const auto all = trainer.context().trainer.communicator().gather(buffer);
    CHECK(torch::equal(all[0], all[1]));
  }
}

TEST_CASE("what processes log is averaged, and only the first writes") {
  if (toy::launches(2)) return;
  struct LogsRank {
    void on(const etude::StepEnd& e) {
      e.log("rank", static_cast<double>(e.args.process_index()));
      if (e.args.process_index() == 1) e.log("of_one", 7);
    }
  };
  auto options = problem(20, 2, 1);
  options.args.logging_by_rank = true;
  etude::Trainer<DistributedDataParallel, LogsRank> trainer(options);
  trainer.train();
  for (const double value : logged(trainer.state(), "rank")) CHECK(value == 0.5);
  for (const double value : logged(trainer.state(), "rank_rank_1")) CHECK(value == 1);
  CHECK(logged(trainer.state(), "rank_rank_0").size() == logged(trainer.state(), "rank").size());
  CHECK(logged(trainer.state(), "of_one_rank_0").empty());
  CHECK(logged(trainer.state(), "of_one").size() == logged(trainer.state(), "rank").size());
  CHECK(trainer.state().is_world_process_zero == (toy::rank() == 0));
  CHECK(trainer.args().world_size() == 2);
  CHECK(trainer.run_config().num_processes == 2);
  CHECK(trainer.run_config().train_total_batch_size == 4);
}

/// A model whose loss is its only input.
struct EchoImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return x + 0 * weight; }
  torch::Tensor weight = register_parameter("weight", torch::zeros({1}));
};
TORCH_MODULE(Echo);

TEST_CASE("non_finite_losses counts the steps in which the loss of any process isn't finite") {
  if (toy::launches(2)) return;
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  // Each process has one example of a step: the first has NaN in steps 3 and 4, the second in 2, 3 and 6.
  const auto losses = torch::tensor(std::vector<float>{1, 1, 1, nan, nan, nan, nan, 1, 1, 1, 1, nan});
  auto args = toy::arguments();
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  args.logging_strategy = IntervalStrategy::steps;
  args.logging_steps = 3;
  etude::Trainer<DistributedDataParallel> trainer(
      {.model = Echo(),
       .args = args,
       .loss = [](torch::Tensor output, torch::Tensor) { return output.mean(); },
       .train_dataset = {losses.reshape({12, 1}), torch::zeros({12, 1})}});
  const auto output = trainer.train();
  CHECK(logged(trainer.state(), "non_finite_losses") == std::vector<double>{2, 2, 4});
  CHECK(output.metrics.at("non_finite_losses") == 4);
}

TEST_CASE("a trainer without the policy refuses to be one of several processes") {
  if (toy::launches(2)) return;
  try {
    etude::Trainer<> trainer(problem(4, 1, 1));
    FAIL("no exception");
  } catch (const etude::ArgumentError& error) {
    const std::string what = error.what();
    CHECK(what.starts_with("the number of processes is 2 (by torchrun, of which this is rank "));
    CHECK(what.find("etude::Trainer<etude::DistributedDataParallel") != std::string::npos);
  }
}

/// Sleeps longer in one process than in the others.
struct SlowIn {
  std::int64_t rank = -1;
  void on(const etude::BackwardEnd& e) const {
    std::this_thread::sleep_for(std::chrono::milliseconds(e.args.process_index() == rank ? 25 : 5));
  }
};

TEST_CASE("a process that makes the others wait is named once, in a warning") {
  if (!toy::is_rank()) {
    for (const bool over_gloo : {false, true}) {
      toy::Processes processes(2, doctest::getContextOptions()->currentTest->m_name,
                               {over_gloo ? "ETUDE_SHARED_MEMORY=0" : "ETUDE_SHARED_MEMORY=1"});
      CHECK(processes.ends() == std::vector<std::string>(2, "exit 0"));
      const auto text = processes.output(0);
      const auto first = text.find("rank 1 is slow: the other processes waited for it during ");
      CHECK(first != text.npos);
      CHECK(text.find("is slow", first + 10) == text.npos);
      CHECK(processes.output(1).find("is slow") == text.npos);
    }
    return;
  }
  auto options = problem(160, 2, 1);
  options.args.logging_steps = 20;
  options.args.log_level = etude::LogLevel::warning;
  etude::Trainer<DistributedDataParallel, SlowIn> trainer(options, SlowIn{.rank = 1});
  CHECK(trainer.train().global_step == 80);
}

TEST_CASE("two processes that send gradients in buckets of ddp_bucket_cap_mb train as one") {
  if (toy::launches(2)) return;
  // Three layers of 1.1 MiB each: in one bucket, or in one bucket each.
  const auto wide = [] {
    torch::manual_seed(3);
    torch::nn::Sequential net(torch::nn::Linear(5, 540));
    for (int i = 0; i < 3; ++i) net->push_back(torch::nn::Linear(540, 540));
    net->push_back(torch::nn::Linear(540, 3));
    return net;
  };
  for (const std::int64_t megabytes : {1, 25}) {
    CAPTURE(megabytes);
    auto options = problem(12, 2, 1);
    options.model = wide();
    options.args.optim = etude::OptimizerNames::sgd;  // Adam would enlarge rounding errors
    options.args.ddp_bucket_cap_mb = megabytes;
    etude::Trainer<DistributedDataParallel> together(options);
    together.train();
    const toy::Alone alone;
    auto whole = problem(12, 4, 1);
    whole.model = wide();
    whole.args.optim = etude::OptimizerNames::sgd;
    etude::Trainer<> one(whole);
    one.train();
    check_close(weights(together), weights(one));
  }
}

TEST_CASE("a backend that isn't there is refused by name") {
  if (toy::launches(2)) return;
  auto options = problem(8, 2, 1);
  options.args.ddp_backend = etude::DdpBackend::mpi;
  CHECK_THROWS_WITH_AS(etude::Trainer<DistributedDataParallel>{options},
                       doctest::Contains("ddp_backend is mpi: must be gloo"), etude::ArgumentError);
  options.args.ddp_backend = etude::DdpBackend::nccl;
  CHECK_THROWS_WITH_AS(etude::Trainer<DistributedDataParallel>{options},
                       doctest::Contains("ddp_backend is nccl: must be gloo"), etude::ArgumentError);
}

TEST_CASE("the advice for several GPUs in one process has the line that uses them") {
  CHECK(etude::detail::advice_for_gpus(4).find("torchrun --nproc-per-node 4 --no-python ") !=
        std::string::npos);
}

TEST_CASE("processes with different arguments are told which one differs") {
  if (toy::launches(2)) return;
  auto options = problem(4, 1, 1);
  if (toy::rank() == 1) options.args.learning_rate = 0.5;
  try {
    etude::Trainer<DistributedDataParallel> trainer(options);
    FAIL("no exception");
  } catch (const etude::ArgumentError& error) {
    CHECK(std::string(error.what())
              .find("learning_rate is 0.01 in rank 0 and 0.5 in rank 1: must be the same") !=
          std::string::npos);
  }
}

TEST_CASE("processes with different models are told which tensor differs") {
  if (toy::launches(2)) return;
  auto options = problem(4, 1, 1);
  if (toy::rank() == 1)
    options.model = torch::nn::Sequential(torch::nn::Linear(5, 9), torch::nn::Linear(9, 3));
  try {
    etude::Trainer<DistributedDataParallel> trainer(options);
    FAIL("no exception");
  } catch (const etude::DataError& error) {
    const std::string what = error.what();
    CHECK(what.find("the model isn't the same in all processes: rank 0 has 0.weight float32 [7, 5]") !=
          std::string::npos);
  }
}

TEST_CASE("a checkpoint of two processes is resumed by two, by one and by four, with the same examples") {
  const toy::Folder folder;
  const auto options = [&](std::int64_t batch, std::int64_t group, const std::string& where) {
    auto result = problem(45, batch, group);
    toy::save_to(where, result.args, 2);
    return result;
  };
  if (toy::is_rank()) {
    const std::string where = std::getenv("ETUDE_TEST_FOLDER");
    const auto world = toy::world_size();
    auto given = options(8 / world, 1, where);
    const std::string now = std::getenv("ETUDE_TEST_STAGE");
    if (now == "break") {
      etude::Trainer<etude::ShardedDataParallel<2>, toy::sines::BreaksAfterStep5> trainer(given);
      CHECK_THROWS(trainer.train());
      return;
    }
    if (now == "resume in shards") {
      etude::Trainer<etude::ShardedDataParallel<1>> trainer(given);
      check_resumed(trainer, where, problem(45, 8, 1));
      return;
    }
    etude::Trainer<DistributedDataParallel> trainer(given);
    check_resumed(trainer, where, problem(45, 8, 1));
    return;
  }
  toy::launches(2, stage(folder, "break"));
  toy::launches(2, stage(folder, "resume"));
  toy::launches(4, stage(folder, "resume"));
  toy::launches(1, stage(folder, "resume"));
  toy::launches(2, stage(folder, "resume in shards"));
  toy::launches(4, stage(folder, "resume in shards"));
}

}  // namespace loop_ranks_test
