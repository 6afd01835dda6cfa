#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <torch/nn/modules/loss.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/full_run.hpp"
#include "common/logged.hpp"
#include "common/quick_files.hpp"
#include "common/ranks.hpp"
#include "common/sines.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/callbacks/model_ema.hpp"
#include "etude/checkpoint/load_weights.hpp"
#include "etude/dispatch/filters.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"
#include "etude/trainer.hpp"
#include "etude/tune/learning_rate_finder.hpp"

/// Trainings with Schedule-Free optimizers, which evaluate and save other weights than they train at.
namespace loop_schedule_free_test {

using etude::IntervalStrategy;
using etude::OptimizerNames;
using toy::sines::check_close;
using toy::sines::examples;

constexpr std::array both{OptimizerNames::schedule_free_adamw, OptimizerNames::schedule_free_sgd};

/// The paper's algorithm 1 with plain gradient steps, for the line through four points, all in one batch.
struct Paper {
  double lr = 0.1, momentum = 0.8, power = 1;
  int warmup = 3, k = 0;
  std::array<double, 2> x{}, z{};  // weight and bias
  double lr_max = 0, weight_sum = 0;

  std::array<double, 2> y() const {
    return {momentum * x[0] + (1 - momentum) * z[0], momentum * x[1] + (1 - momentum) * z[1]};
  }
  void step() {
    const auto [w, b] = y();
    std::array<double, 2> gradient{};
    for (const double at : {0.0, 0.25, 0.5, 0.75}) {
      const double error = w * at + b - (2 * at + 1);
      gradient[0] += 2 * error * at / 4;
      gradient[1] += 2 * error / 4;
    }
    ++k;
    const double rate = lr * std::min(1.0, static_cast<double>(k) / warmup);
    lr_max = std::max(lr_max, rate);
    const double weight = std::pow(k, power) * lr_max * lr_max;
    weight_sum += weight;
    for (std::size_t i = 0; i < 2; ++i) {
      z[i] -= rate * gradient[i];
      x[i] += weight / weight_sum * (z[i] - x[i]);
    }
  }
  double loss_at(const std::array<double, 2>& weights) const {
    double sum = 0;
    for (const double at : {0.0, 0.25, 0.5, 0.75})
      sum += std::pow(weights[0] * at + weights[1] - (2 * at + 1), 2) / 4;
    return sum;
  }
};

/// A training of that line.
etude::TrainerOptions line(const std::string& folder = "/nonexistent", std::int64_t max_steps = 8) {
  auto args = etude::plain_loop();
  args.output_dir = folder;
  args.optim = OptimizerNames::schedule_free_sgd;
  args.optim_args = "momentum=0.8,r=1,warmup_steps=3";
  args.learning_rate = 0.1;
  args.per_device_train_batch_size = 4;
  args.per_device_eval_batch_size = 4;
  args.max_steps = max_steps;
  args.logging_strategy = IntervalStrategy::no;
  args.log_level = etude::LogLevel::critical;
  args.report = etude::ReportMode::quiet;
  return toy::options(args, 4, 4);
}

std::array<double, 2> weights_of(const etude::Model& model) {
  std::map<std::string, double> values;
  for (const auto& [name, tensor] : model.named_parameters()) values[name] = tensor.item<double>();
  return {values.at("weight"), values.at("bias")};
}

void check_equal(const std::array<double, 2>& ours, const std::array<double, 2>& paper) {
  for (std::size_t i = 0; i < 2; ++i) CHECK(ours[i] == doctest::Approx(paper[i]).epsilon(1e-5));
}

/// The weights that each event sees, by its name and its step.
struct Seen {
  std::map<std::string, std::map<std::int64_t, std::array<double, 2>>, std::less<>> weights = {};

  template <std::derived_from<etude::Context> Event>
  void on(const Event& e) {
    weights[std::string(etude::short_type_name<Event>())][e.state.global_step] = weights_of(e.model);
  }
};

TEST_CASE("steps are made at the training's weights, and evaluations and checkpoints have the average") {
  const toy::Folder folder;
  auto options = line(folder);
  options.args.eval_strategy = IntervalStrategy::steps;
  options.args.eval_steps = 2;
  options.args.load_best_model_at_end = true;
  options.args.metric_for_best_model = "loss";
  options.args.greater_is_better = true;  // so that the first evaluation is the best
  toy::save_to(folder, options.args, 2);
  std::vector<std::filesystem::path> pushed;
  options.push = [&](const std::filesystem::path& checkpoint) { pushed.push_back(checkpoint); };
  etude::Trainer<Seen> trainer(options);
  std::vector<Paper> paper(1);
  for (int step = 0; step < 8; ++step) {
    paper.push_back(paper.back());
    paper.back().step();
  }
  trainer.train();
  const auto& seen = trainer.callback<Seen>().weights;
  for (const char* event : {"ForwardBegin", "BackwardEnd", "PreOptimizerStep", "OptimizerStep", "StepEnd"}) {
    CAPTURE(event);
    CHECK(seen.at(event).size() == 8);
    const bool has_stepped = std::string(event) == "OptimizerStep";
    for (const auto& [step, weights] : seen.at(event))
      check_equal(weights, paper[static_cast<std::size_t>(step + (has_stepped ? 1 : 0))].y());
  }
  for (const char* event : {"EvaluateBegin", "PredictionStepBegin", "PredictionStep", "EvaluateEnd",
                            "Evaluate", "EvaluateAll", "SaveBegin", "Save", "PushBegin"}) {
    CAPTURE(event);
    CHECK(seen.at(event).size() == 4);
    for (const auto& [step, weights] : seen.at(event))
      check_equal(weights, paper[static_cast<std::size_t>(step)].x);
  }
  CHECK(pushed.size() == 4);
  const auto losses = toy::logged(trainer.state(), "eval_loss");
  REQUIRE(losses.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& then = paper[2 * (i + 1)];
    CHECK(losses[i] == doctest::Approx(then.loss_at(then.x)).epsilon(1e-4));
    // The averages are far enough from the training's weights for these checks to tell them apart.
    CHECK(std::abs(then.loss_at(then.y()) / then.loss_at(then.x) - 1) > 5e-3);
    toy::Line saved;
    etude::load_weights(*saved, folder / fmt::format("checkpoint-{}", 2 * (i + 1)));
    check_equal(weights_of(saved), then.x);
  }
  check_equal(seen.at("TrainEnd").at(8), paper[2].x);  // the best
  check_equal(weights_of(trainer.model()), paper[2].x);
}

TEST_CASE("after a training, the model has the average, and is evaluated, predicts and is saved with it") {
  const toy::Folder folder;
  etude::Trainer<Seen> trainer(line(folder, 5));
  trainer.train();
  Paper paper;
  for (int step = 0; step < 5; ++step) paper.step();
  check_equal(weights_of(trainer.model()), paper.x);
  check_equal(trainer.callback<Seen>().weights.at("TrainEnd").at(5), paper.x);
  CHECK(trainer.evaluate().at("eval_loss") == doctest::Approx(paper.loss_at(paper.x)).epsilon(1e-4));
  const auto predictions = trainer.predict(toy::dataset(4)).predictions[0];
  CHECK(predictions[2].item<double>() == doctest::Approx(0.5 * paper.x[0] + paper.x[1]).epsilon(1e-5));
  trainer.save_model(folder / "model");
  toy::Line saved;
  etude::load_weights(*saved, folder / "model");
  check_equal(weights_of(saved), paper.x);
  check_equal(weights_of(trainer.model()), paper.x);
}

TEST_CASE("a callback that evaluates or saves between steps gets the average, and later steps don't") {
  const toy::Folder folder;
  struct Asks {
    std::string folder;
    double loss = 0;
    void on(const etude::StepEnd& e) {
      if (e.state.global_step != 4) return;
      loss = e.trainer.evaluate({}).at("eval_loss");
      e.trainer.save_model(folder);
    }
  };
  etude::Trainer<Asks, Seen> trainer(line(folder), Asks{folder / "model"}, Seen());
  trainer.train();
  Paper paper;
  for (int step = 0; step < 4; ++step) paper.step();
  CHECK(trainer.callback<Asks>().loss == doctest::Approx(paper.loss_at(paper.x)).epsilon(1e-4));
  toy::Line saved;
  etude::load_weights(*saved, folder / "model");
  check_equal(weights_of(saved), paper.x);
  const auto& seen = trainer.callback<Seen>().weights.at("StepEnd");
  for (int step = 4; step <= 8; ++step, paper.step()) check_equal(seen.at(step), paper.y());
}

struct Breaks {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 3) throw std::runtime_error("broken");
  }
};

TEST_CASE("a training that an exception ends leaves the average in the model") {
  etude::Trainer<Breaks> trainer(line());
  CHECK_THROWS_WITH_AS(trainer.train(), "broken", std::runtime_error);
  Paper paper;
  for (int step = 0; step < 3; ++step) paper.step();
  check_equal(weights_of(trainer.model()), paper.x);
}

TEST_CASE("a second training continues the first, or from other weights if the program has set them") {
  etude::Trainer<Seen> trainer(line("/nonexistent", 4));
  trainer.train();
  trainer.train();
  Paper paper;
  for (int step = 0; step < 8; ++step) paper.step();
  check_equal(weights_of(trainer.model()), paper.x);

  for (const auto& parameter : trainer.model().parameters()) parameter.detach().fill_(5);
  trainer.train();
  // The new weights replace x; the distance from x to z stays.
  const auto begin = trainer.callback<Seen>().weights.at("TrainBegin").at(0);
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(begin[i] == doctest::Approx(5 + 0.2 * (paper.z[i] - paper.x[i])).epsilon(1e-5));
}

TEST_CASE("a phase begins with the average of the phase before it") {
  auto options = line();
  options.args.max_steps = -1;
  options.phases = {{"first", {.max_steps = 4}},
                    {"second", {.max_steps = 2, .optim = OptimizerNames::sgd, .optim_args = ""}}};
  etude::Trainer<Seen> trainer(options);
  trainer.train();
  Paper paper;
  for (int step = 0; step < 4; ++step) paper.step();
  check_equal(trainer.callback<Seen>().weights.at("PhaseBegin").at(4), paper.x);
}

/// Checksums of the weights after each step.
struct Diary {
  std::vector<std::string> steps = {};
  void on(const etude::StepEnd& e) {
    std::string text;
    for (const auto& [name, tensor] : e.model.state_dict()) text += toy::checksum_of(tensor) + " ";
    steps.push_back(text);
  }
};

etude::TrainerOptions waves(const std::string& folder, OptimizerNames optim) {
  static std::mt19937 engine;
  auto options = toy::full_options(folder, engine);
  options.args.optim = optim;
  options.args.optim_args = "warmup_steps=4";
  options.args.eval_strategy = IntervalStrategy::no;
  options.args.metric_for_best_model.reset();
  options.args.save_strategy = etude::SaveStrategy::no;
  options.generators = {};
  return options;
}

TEST_CASE("evaluations, averages of another kind and checkpoints leave the training bit-identical") {
  for (const auto optim : both) {
    const toy::Folder folder;
    etude::Trainer<toy::Quiet, Diary> plain(waves(folder, optim));
    plain.train();
    const auto expected = plain.callback<Diary>().steps;
    REQUIRE(expected.size() == 12);
    for (const bool is_async : {false, true}) {
      auto options = waves(folder, optim);
      options.args.eval_strategy = IntervalStrategy::steps;
      options.args.eval_steps = 1;
      options.args.eval_on_start = true;
      options.args.save_async = is_async;
      toy::save_to(folder, options.args, 1);
      etude::Trainer<toy::Quiet, Diary, etude::ModelEmaCallback> busy(options);
      busy.train();
      CHECK(busy.callback<Diary>().steps == expected);
      CHECK(toy::weights(busy) == toy::weights(plain));
      CHECK(toy::logged(busy.state(), "ema_model_eval_loss").size() == 13);
    }
  }
}

/// Sends SIGTERM at the n-th SubstepEnd.
struct Interrupter {
  int n = 0;
  void on(const etude::SubstepEnd&) {
    if (--n == 0) ::raise(SIGTERM);
  }
};

using Whole = etude::Trainer<toy::Quiet, toy::Diary, etude::EarlyStoppingCallback, Interrupter>;

struct Run {
  std::mt19937 engine;
  std::unique_ptr<Whole> trainer;

  Run(const std::string& folder, OptimizerNames optim, const std::string& optim_args, bool pure_bf16 = false,
      int interrupted_at = 0) {
    auto options = toy::full_options(folder, engine);
    options.args.optim = optim;
    options.args.optim_args = optim_args;
    options.args.pure_bf16 = pure_bf16;
    options.args.load_best_model_at_end = true;
    options.args.eval_steps = 1;
    options.file_system = std::make_shared<toy::QuickFiles>();
    trainer = std::make_unique<Whole>(options, toy::Diary{.engine = &engine},
                                      etude::EarlyStoppingCallback{.early_stopping_patience = 99},
                                      Interrupter{interrupted_at});
  }
};

TEST_CASE(
    "a training resumed from any step, or from within one, ends bit-identical to an uninterrupted one") {
  for (const auto optim : both) {
    const toy::Folder folder;
    const std::string optim_args = "warmup_steps=4,r=1";
    Run whole(folder, optim, optim_args);
    whole.trainer->train();
    const auto expected = toy::outcome(*whole.trainer);
    for (const int step : {1, 3, 6, 11, 12}) {
      CAPTURE(step);
      const toy::Folder other;
      Run resumed(other, optim, optim_args);
      resumed.trainer->train({.resume_from_checkpoint = folder / fmt::format("checkpoint-{}", step)});
      CHECK(toy::outcome(*resumed.trainer) == expected);
    }
    void (*const before)(int) = ::signal(SIGTERM, [](int) {});
    const toy::Folder other;
    Run interrupted(other, optim, optim_args, false, 11);
    CHECK_THROWS_AS(interrupted.trainer->train(), etude::Interrupted);
    Run rest(other, optim, optim_args);
    rest.trainer->train({.resume_from_checkpoint = true});
    CHECK(toy::outcome(*rest.trainer) == expected);
    ::signal(SIGTERM, before);
  }
}

TEST_CASE("a training in pure bf16 is resumed bit for bit, however it rounds") {
  for (const char* rounding : {"kahan", "stochastic"}) {
    const toy::Folder folder, other;
    const std::string optim_args = std::string("warmup_steps=4,rounding=") + rounding;
    Run whole(folder, OptimizerNames::schedule_free_adamw, optim_args, true);
    whole.trainer->train();
    Run resumed(other, OptimizerNames::schedule_free_adamw, optim_args, true);
    resumed.trainer->train({.resume_from_checkpoint = folder / "checkpoint-5"});
    CHECK(toy::outcome(*resumed.trainer) == toy::outcome(*whole.trainer));
  }
}

TEST_CASE("another optimizer resumes from the average") {
  const toy::Folder folder;
  auto first = line(folder, 5);
  toy::save_to(folder, first.args, 5);
  etude::Trainer<> trainer(first);
  trainer.train();
  auto second = line(folder);
  second.args.optim = OptimizerNames::sgd;
  second.args.optim_args = "";
  etude::Trainer<Seen> resumed(second);
  resumed.train({.resume_from_checkpoint = true});
  Paper paper;
  for (int step = 0; step < 5; ++step) paper.step();
  check_equal(resumed.callback<Seen>().weights.at("TrainBegin").at(5), paper.x);
}

TEST_CASE("a dry run after a training leaves the average in the model and the next training as it is") {
  const auto twice = [](bool tries_rates) {
    etude::Trainer<> trainer(line("/nonexistent", 4));
    trainer.train();
    const auto before = toy::weights(trainer);
    if (tries_rates) etude::find_learning_rate(trainer, {.num_it = 10});
    CHECK(toy::weights(trainer) == before);
    trainer.train();
    return toy::weights(trainer);
  };
  CHECK(twice(true) == twice(false));
}

TEST_CASE("of several optimizers, only those that average evaluate at other weights") {
  auto options = line();
  options.args.optim_args = "";
  options.optimizers = {
      {"weight", {.optim = OptimizerNames::schedule_free_sgd, .optim_args = "momentum=0.5"}},
      {"bias", {.optim = OptimizerNames::sgd, .optim_args = ""}}};
  options.args.eval_strategy = IntervalStrategy::steps;
  options.args.eval_steps = 1;
  etude::Trainer<Seen> trainer(options);
  trainer.train();
  const auto& seen = trainer.callback<Seen>().weights;
  for (std::int64_t step = 2; step <= 8; ++step) {
    CHECK(seen.at("EvaluateBegin").at(step)[0] != seen.at("StepEnd").at(step)[0]);
    CHECK(seen.at("EvaluateBegin").at(step)[1] == seen.at("StepEnd").at(step)[1]);
  }
}

TEST_CASE("a step that fp16 skips moves neither the weights nor their average") {
  if (!etude::computes_in_float16(torch::kCPU)) {
    MESSAGE("this LibTorch doesn't compute in float16 on the CPU");
    CHECK(true);
    return;
  }
  auto options = line();
  options.args.fp16 = true;
  options.args.learning_rate = 0.01;
  options.compute_loss = [calls = 0](etude::Model& model, const etude::Batch& batch,
                                     std::optional<double>) mutable -> etude::LossOutput {
    auto outputs = model.forward(batch);
    // The fourth loss overflows once it is scaled.
    return {torch::mse_loss(outputs[0].to(torch::kFloat), batch.labels[0]) * (++calls == 4 ? 1e38 : 1),
            outputs, false};
  };
  options.loss = {};
  options.args.eval_strategy = IntervalStrategy::no;
  etude::Trainer<Seen> trainer(options);
  const auto output = trainer.train();
  CHECK(output.metrics.at("skipped_steps") == 1);
  const auto group = trainer.optimizer()->options_state()["changed"][0];
  CHECK(group["k"] == trainer.state().global_step);
}

// Several processes.

etude::TrainerOptions sines(OptimizerNames optim, const std::string& folder, std::int64_t batch) {
  auto args = toy::sines::arguments(batch, 2);
  args.output_dir = folder;
  args.optim = optim;
  args.optim_args = "warmup_steps=3";
  args.learning_rate = optim == OptimizerNames::schedule_free_sgd ? 0.5 : 0.02;
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 2;
  return toy::sines::problem(toy::sines::net(), args);
}

template <class Policy>
void check_processes(OptimizerNames optim) {
  const std::string folder = std::getenv("ETUDE_TEST_FOLDER");
  const auto place = fmt::format("{}/{}-{}", folder, etude::short_type_name<Policy>(), optim);
  auto options = sines(optim, place, 3);
  toy::save_to(place, options.args, 2);
  etude::Trainer<Policy> together(options);
  together.train();
  options.model = toy::sines::net();
  etude::Trainer<Policy> resumed(options);
  resumed.train({.resume_from_checkpoint = place + "/checkpoint-4"});
  CHECK(toy::weights(resumed) == toy::weights(together));
  const auto own = std::to_string(toy::rank());
  const toy::Alone alone;
  etude::Trainer<> one(sines(optim, place + "-alone-" + own, 6));
  one.train();
  check_close(toy::sines::weights(together), toy::sines::weights(one));
  const auto losses = toy::logged(together.state(), "eval_loss"),
             expected = toy::logged(one.state(), "eval_loss");
  REQUIRE(losses.size() == expected.size());
  REQUIRE(losses.size() == 4);
  for (std::size_t i = 0; i < losses.size(); ++i)
    CHECK(losses[i] == doctest::Approx(expected[i]).epsilon(1e-5));
  auto from = sines(optim, place + "-from-" + own, 6);
  etude::Trainer<> from_shares(from);  // the state of several processes
  from_shares.train({.resume_from_checkpoint = place + "/checkpoint-4"});
  check_close(toy::sines::weights(from_shares), toy::sines::weights(one));
}

TEST_CASE("processes evaluate, save and end with the average, whatever each keeps of the state") {
  if (!toy::is_rank()) {
    const toy::Folder folder;
    toy::launches(2, {"ETUDE_TEST_FOLDER=" + std::string(folder)});
    return;
  }
  for (const auto optim : both) {
    check_processes<etude::DistributedDataParallel>(optim);
    check_processes<etude::ShardedDataParallel<1>>(optim);
    check_processes<etude::ShardedDataParallel<2>>(optim);
    check_processes<etude::ShardedDataParallel<3>>(optim);
  }
}

}  // namespace loop_schedule_free_test
