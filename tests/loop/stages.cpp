// Draws at random the arguments that several processes may disagree about, for every stage of a training and
// every policy. A training must either give the same result as one process, or be refused with an error from
// the table in docs/several-processes.md. A training that waits for a process that never comes ends at
// `ddp_timeout`.

#include <doctest/doctest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/folder.hpp"
#include "common/ranks.hpp"
#include "common/sines.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/callbacks/gradual_unfreezing.hpp"
#include "etude/callbacks/loss_spike.hpp"
#include "etude/callbacks/model_ema.hpp"
#include "etude/callbacks/save_best_model.hpp"
#include "etude/callbacks/stochastic_weight_averaging.hpp"
#include "etude/callbacks/top_k_checkpoints.hpp"
#include "etude/metrics/accuracy.hpp"
#include "etude/metrics/streaming.hpp"
#include "etude/trainer.hpp"
#include "etude/tune/batch_size_finder.hpp"
#include "etude/tune/learning_rate_finder.hpp"

namespace loop_stages_test {

using etude::IntervalStrategy;
using etude::SaveStrategy;
using toy::sines::examples;
using toy::sines::net;

enum class Way { train, resume, by_hand };
enum class Added { nothing, best, ema, averaging, spikes, patience, unfreezing, top };

/// The random choices for one training.
struct Draw {
  etude::TrainingArguments args = toy::arguments();
  Way way = Way::train;
  Added added = Added::nothing;
  bool trains_twice = false, computes_metrics = false, has_two_datasets = false, pushes = false;
};

Draw drawn(unsigned seed, int stage) {
  std::mt19937 random(seed);
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  const auto one_of = [&]<class T, std::size_t n>(const std::array<T, n>& choices) {
    return choices[random() % n];
  };
  Draw draw;
  draw.way = one_of(std::array{Way::train, Way::train, Way::resume, Way::by_hand});
  if (one_in(2))
    draw.added = one_of(std::array{Added::best, Added::ema, Added::averaging, Added::spikes, Added::patience,
                                   Added::unfreezing, Added::top});
  draw.trains_twice = one_in(4) && draw.way == Way::train;
  draw.computes_metrics = one_in(2);
  draw.has_two_datasets = one_in(4);
  draw.pushes = one_in(3);
  auto& args = draw.args;
  args.per_device_eval_batch_size = 2;
  args.max_steps = 6;
  args.learning_rate = 0.01;
  args.ddp_timeout = 60;
  args.optim = one_of(std::array{etude::OptimizerNames::adamw_torch_fused, etude::OptimizerNames::sgd,
                                 etude::OptimizerNames::lion});
  if (one_in(10)) args.optim = etude::OptimizerNames::adafactor;
  args.gradient_accumulation_steps = one_of(std::array{1, 1, 2});
  args.max_grad_norm = one_of(std::array{0.0, 0.5});
  const auto interval = one_of(std::array{1, 3});
  if (one_in(4) && draw.way == Way::train) {
    args.eval_strategy = IntervalStrategy::epoch;
    args.save_strategy = SaveStrategy::epoch;
  } else {
    args.eval_strategy = IntervalStrategy::steps;
    args.save_strategy = SaveStrategy::steps;
  }
  args.eval_steps = args.save_steps = interval;
  args.load_best_model_at_end =
      one_in(2) && draw.added != Added::best && draw.added != Added::ema && draw.added != Added::averaging;
  if (one_in(5) && draw.way == Way::train) args.save_strategy = SaveStrategy::best;
  args.save_async = one_in(3);
  if (one_in(3)) args.save_total_limit = 1;
  args.save_only_model = one_in(6) && draw.way == Way::train;
  args.eval_on_start = one_in(4);
  args.logging_strategy = IntervalStrategy::steps;
  args.logging_steps = 2;
  args.logging_by_rank = one_in(4);
  args.prediction_loss_only = one_in(5);
  args.batch_eval_metrics = one_in(3) && draw.computes_metrics;
  args.eval_do_concat_batches = !one_in(4) || draw.computes_metrics;
  args.gradient_checkpointing = one_in(3);
  if (one_in(3))
    args.on_non_finite = one_of(std::array{etude::OnNonFinite::skip, etude::OnNonFinite::restore});
  args.ddp_broadcast_buffers = !one_in(3);
  args.ddp_find_unused_parameters = !one_in(4) || draw.added == Added::unfreezing;
  args.average_tokens_across_devices = !one_in(4);
  args.dataloader_drop_last = one_in(4);
  args.dataloader_num_workers = one_of(std::array{0, 0, 2});
  args.train_sampling_strategy =
      one_of(std::array{etude::SamplingStrategy::random, etude::SamplingStrategy::sequential,
                        etude::SamplingStrategy::group_by_length});
  args.restore_callback_states_from_checkpoint = !one_in(6) || draw.added == Added::ema;
  // Arguments that a stage refuses are drawn less often there, so that more trainings complete.
  const auto seldom = stage >= 2 ? 12u : 4u;
  args.auto_microbatching = one_in(seldom);
  args.auto_find_batch_size = one_in(seldom) && draw.way != Way::by_hand;
  args.bf16_full_eval = one_in(seldom);
  args.eval_enable_grad = one_in(seldom);
  if (stage == 3 && !one_in(8) &&
      (draw.added == Added::best || draw.added == Added::ema || draw.added == Added::averaging ||
       draw.added == Added::spikes))
    draw.added = Added::nothing;
  return draw;
}

/// A part of the error with which a stage (0: nothing is divided) refuses a training, or "". Follows the rows
/// of that table.
std::string refusal(const Draw& draw, int stage) {
  const auto& args = draw.args;
  if (stage == 3 && args.bf16_full_eval) return "bf16_full_eval is true: must be false with";
  if (stage == 3 && args.eval_enable_grad) return "eval_enable_grad is true: must be false with";
  if (stage >= 2 && args.auto_microbatching) return "auto_microbatching is true: must be false with";
  if (stage == 3 && args.auto_find_batch_size) return "auto_find_batch_size is true: must be false with";
  if (stage == 3 && draw.added == Added::best) return "SaveBestModelCallback reads the parameters";
  if (stage == 3 && draw.added == Added::ema) return "ModelEmaCallback reads the parameters";
  if (stage == 3 && draw.added == Added::averaging) return "StochasticWeightAveragingCallback reads";
  if (stage == 3 && draw.added == Added::spikes) return "LossSpikeCallback reads the parameters";
  if (stage >= 1 && args.optim == etude::OptimizerNames::adafactor)
    return "the optimizer is Adafactor: optim must be one of";
  return "";
}

std::vector<torch::Tensor> copies(const etude::Model& model) {
  std::vector<torch::Tensor> result;
  for (const auto& [name, tensor] : model.state_dict()) result.push_back(tensor.detach().clone());
  return result;
}

struct Result {
  std::vector<torch::Tensor> weights = {};
  torch::Tensor predictions = {};
  double eval_loss = 0;
  std::string fault = "";
};

template <class Trainer>
void add_callback(Trainer& trainer, const Draw& draw) {
  const std::string metric = draw.has_two_datasets ? "eval_b_loss" : "eval_loss";
  switch (draw.added) {
    case Added::nothing:
      break;
    case Added::best:
      trainer.add_callback(etude::SaveBestModelCallback{.watch_metric = metric});
      break;
    case Added::ema:
      trainer.add_callback(etude::ModelEmaCallback{.decay = 0.5, .load_at_end = true});
      break;
    case Added::averaging:
      trainer.add_callback(etude::StochasticWeightAveragingCallback{.swa_epoch_start = 0});
      break;
    case Added::spikes:
      trainer.add_callback(etude::LossSpikeCallback{.action = etude::LossSpikeAction::roll_back});
      break;
    case Added::patience:
      trainer.add_callback(etude::EarlyStoppingCallback{.early_stopping_patience = 1});
      break;
    case Added::unfreezing:
      trainer.add_callback(etude::GradualUnfreezingCallback{.layer_groups = {"0", "2"}});
      break;
    case Added::top:
      trainer.add_callback(etude::TopKCheckpointsCallback{.k = 1, .watch_metric = metric});
      break;
  }
}

/// `batch`: the examples of a process in each batch.
template <class Policy>
Result run(const Draw& draw, const std::string& folder, std::int64_t batch) {
  using Trainer = etude::Trainer<Policy, etude::RuntimeCallbacks>;
  const auto options = [&] {
    etude::TrainerOptions result{.model = net(),
                                 .args = draw.args,
                                 .loss = torch::nn::CrossEntropyLoss(),
                                 .train_dataset = examples(22),
                                 .eval_dataset = examples(11)};
    if (draw.has_two_datasets) result.eval_dataset = {{"a", examples(5)}, {"b", examples(11)}};
    if (draw.computes_metrics) result.compute_metrics = etude::metrics::streaming(etude::metrics::Accuracy());
    if (draw.pushes) result.push = [](const std::filesystem::path&) {};
    result.args.output_dir = folder;
    result.args.per_device_train_batch_size = batch;
    return result;
  };
  Result result;
  try {
    auto given = options();
    if (draw.has_two_datasets) given.args.metric_for_best_model = "eval_b_loss";
    if (draw.way == Way::resume) {
      auto first = given;
      first.args.max_steps = 3;
      first.model = net();
      Trainer trainer(first);
      add_callback(trainer, draw);
      trainer.train();
    }
    Trainer trainer(given);
    add_callback(trainer, draw);
    if (draw.way == Way::by_hand) {
      const auto data = examples(22);
      const auto rank = trainer.args().process_index(), world = trainer.args().world_size();
      for (std::int64_t place = 0;;) {
        std::vector<std::int64_t> rows;
        for (std::int64_t i = 0; i < batch; ++i) rows.push_back((place + rank * batch + i) % 22);
        place += batch * world;
        if (trainer.step(data.fetch(rows)).should_stop) break;
      }
      trainer.finish();
    } else {
      trainer.train({.resume_from_checkpoint = etude::if_any});
      if (draw.trains_twice) trainer.train();
    }
    result.eval_loss = trainer.evaluate().at(draw.has_two_datasets ? "eval_b_loss" : "eval_loss");
    const auto all = trainer.predict(examples(7)).predictions;
    if (draw.args.eval_do_concat_batches && !draw.args.prediction_loss_only) result.predictions = all[0];
    trainer.save_model(folder + "/model");
    result.weights = copies(trainer.model());
  } catch (const std::exception& error) {
    result.fault = error.what();
  }
  return result;
}

void check_equal(const Result& together, const Result& one) {
  CHECK(one.fault == "");
  REQUIRE(together.weights.size() == one.weights.size());
  for (std::size_t i = 0; i < one.weights.size(); ++i)
    CHECK((together.weights[i] - one.weights[i]).abs().max().item<double>() <= 1e-4);
  CHECK(together.eval_loss == doctest::Approx(one.eval_loss).epsilon(1e-3));
  if (one.predictions.defined())
    CHECK((together.predictions - one.predictions).abs().max().item<double>() <= 1e-3);
}

/// Runs the trainings of these numbers with a policy, and compares each with one process.
template <class Policy>
void check_stage(int stage, unsigned first, unsigned count) {
  const std::string folder = std::getenv("ETUDE_TEST_FOLDER");
  int ended = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    CAPTURE(stage);
    CAPTURE(seed);
    const auto draw = drawn(seed, stage);
    const auto place = folder + "/" + std::to_string(stage) + "-" + std::to_string(seed);
    const auto together = run<Policy>(draw, place, 2);
    const auto expected = refusal(draw, stage);
    if (!expected.empty()) {
      CHECK_MESSAGE(together.fault.find(expected) != std::string::npos, together.fault, " instead of ",
                    expected);
      continue;
    }
    ++ended;
    CHECK(together.fault == "");
    const auto apart = place + "-alone-" + std::to_string(toy::rank());
    const auto world_size = toy::world_size();
    const toy::Alone alone;
    check_equal(together, run<etude::SingleProcess>(draw, apart, 2 * world_size));
  }
  CHECK(ended > 0);
}

/// The number in an environment variable, or `otherwise`. ETUDE_TEST_SEED and ETUDE_TEST_TRAININGS select
/// other trainings, to search for failures.
unsigned number_of(const char* variable, unsigned otherwise) {
  const char* const text = std::getenv(variable);
  return text ? static_cast<unsigned>(std::atoi(text)) : otherwise;
}

template <class Policy>
void check_stage(int stage) {
  if (!toy::is_rank()) {
    const toy::Folder folder;
    toy::launches(2, {"ETUDE_TEST_FOLDER=" + std::string(folder)});
    return;
  }
  check_stage<Policy>(stage, number_of("ETUDE_TEST_SEED", 1), number_of("ETUDE_TEST_TRAININGS", 12));
}

TEST_CASE("DistributedDataParallel ends every stage of random trainings as one process does") {
  check_stage<etude::DistributedDataParallel>(0);
}

TEST_CASE(
    "ShardedDataParallel<1> ends every stage of random trainings as one process does, or refuses by name") {
  check_stage<etude::ShardedDataParallel<1>>(1);
}

TEST_CASE(
    "ShardedDataParallel<2> ends every stage of random trainings as one process does, or refuses by name") {
  check_stage<etude::ShardedDataParallel<2>>(2);
}

TEST_CASE(
    "ShardedDataParallel<3> ends every stage of random trainings as one process does, or refuses by name") {
  check_stage<etude::ShardedDataParallel<3>>(3);
}

TEST_CASE("with shares of the parameters, the best model is loaded at the end") {
  if (!toy::is_rank()) {
    const toy::Folder folder;
    toy::launches(2, {"ETUDE_TEST_FOLDER=" + std::string(folder)});
    return;
  }
  Draw draw;
  draw.args.max_steps = 6;
  draw.args.learning_rate = 3;  // the first evaluation is the best
  draw.args.optim = etude::OptimizerNames::sgd;
  draw.args.eval_strategy = IntervalStrategy::steps;
  draw.args.save_strategy = SaveStrategy::steps;
  draw.args.eval_steps = draw.args.save_steps = 1;
  draw.args.load_best_model_at_end = true;
  draw.args.ddp_timeout = 60;
  const std::string folder = std::getenv("ETUDE_TEST_FOLDER");
  const auto together = run<etude::ShardedDataParallel<3>>(draw, folder + "/together", 2);
  CHECK(together.fault == "");
  const auto apart = folder + "/alone-" + std::to_string(toy::rank());
  const toy::Alone alone;
  check_equal(together, run<etude::SingleProcess>(draw, apart, 4));
}

struct SavesAtTheEnd {
  std::string folder = "";
  double loss = 0;
  void on(const etude::TrainEnd& e) {
    if (e.args.process_index() == 0) e.trainer.save_model(folder);  // as a tracker does
    loss = e.trainer.evaluate().at("eval_loss");
  }
};

TEST_CASE("with shares of the parameters, TrainEnd sees whole parameters, in one process alone too") {
  if (!toy::is_rank()) {
    const toy::Folder folder;
    toy::launches(2, {"ETUDE_TEST_FOLDER=" + std::string(folder)});
    return;
  }
  auto args = toy::arguments();
  args.ddp_timeout = 60;
  etude::Trainer<etude::ShardedDataParallel<3>, SavesAtTheEnd> trainer(
      {.model = net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = examples(8),
       .eval_dataset = examples(4)},
      SavesAtTheEnd{std::getenv("ETUDE_TEST_FOLDER")});
  trainer.train();
  CHECK(trainer.evaluate().at("eval_loss") ==
        doctest::Approx(trainer.callback<SavesAtTheEnd>().loss).epsilon(1e-6));
  trainer.context().trainer.communicator().barrier();
  CHECK(std::filesystem::exists(std::string(std::getenv("ETUDE_TEST_FOLDER")) + "/model.safetensors"));
}

struct EvaluatesBeforePush {
  int pushes = 0;
  void on(const etude::PushBegin& e) {
    ++pushes;
    e.trainer.evaluate();
  }
};

TEST_CASE("PushBegin is raised in all processes, and the first one pushes") {
  if (!toy::is_rank()) {
    const toy::Folder folder;
    toy::launches(2, {"ETUDE_TEST_FOLDER=" + std::string(folder)});
    return;
  }
  auto args = toy::arguments();
  toy::save_to(std::getenv("ETUDE_TEST_FOLDER"), args, 2);
  args.ddp_timeout = 60;
  int pushed = 0;
  etude::Trainer<etude::DistributedDataParallel, EvaluatesBeforePush> trainer(
      {.model = net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = examples(8),
       .eval_dataset = examples(4),
       .push = [&](const std::filesystem::path&) { ++pushed; }});
  trainer.train();
  CHECK(trainer.callback<EvaluatesBeforePush>().pushes == 2);
  CHECK(pushed == (toy::rank() == 0 ? 2 : 0));
}

TEST_CASE("what finds a learning rate or a batch size is refused in several processes, in all") {
  if (toy::launches(2)) return;
  etude::Trainer<etude::DistributedDataParallel> trainer({.model = net(),
                                                          .args = toy::arguments(),
                                                          .loss = torch::nn::CrossEntropyLoss(),
                                                          .train_dataset = examples(8)});
  CHECK_THROWS_WITH_AS(etude::find_learning_rate(trainer),
                       doctest::Contains("the number of processes is 2: must be 1"), etude::ArgumentError);
  CHECK_THROWS_WITH_AS(etude::find_batch_size(trainer),
                       doctest::Contains("the number of processes is 2: must be 1"), etude::ArgumentError);
  trainer.train();
}

}  // namespace loop_stages_test
