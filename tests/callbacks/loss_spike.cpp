#include "etude/callbacks/loss_spike.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "common/fault_of.hpp"
#include "common/full_run.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/model_ema.hpp"

namespace callbacks_loss_spike_test {

using etude::LossSpikeAction;
using etude::LossSpikeCallback;
using Trainer = etude::Trainer<LossSpikeCallback>;
using Steps = std::vector<std::int64_t>;

/// The targets of 64 examples, which are trained on in this order, one per step. All except `others` lie on a
/// line.
torch::Tensor targets(const std::map<std::int64_t, float>& others) {
  auto y = 2 * torch::arange(64).to(torch::kFloat).reshape({64, 1}) / 64 + 1;
  for (const auto& [i, value] : others) y[i].fill_(value);
  return y;
}

etude::TrainerOptions options_of(const torch::Tensor& y, std::vector<std::int64_t> skipped = {}) {
  auto args = toy::arguments();
  args.learning_rate = 1e-3;
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  auto options = toy::options(args);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < 64; ++i)
    if (std::ranges::find(skipped, i) == skipped.end()) rows.push_back(i);
  const auto chosen = torch::tensor(rows);
  const auto x = torch::arange(64).to(torch::kFloat).reshape({64, 1}) / 64;
  options.train_dataset = {x.index_select(0, chosen), y.index_select(0, chosen)};
  return options;
}

std::vector<double> weights_of(Trainer& trainer) {
  std::vector<double> values;
  for (const auto& tensor : trainer.model().parameters()) values.push_back(tensor.item<double>());
  return values;
}

Steps range(std::int64_t first, std::int64_t last) {
  Steps steps;
  for (; first <= last; ++first) steps.push_back(first);
  return steps;
}

TEST_CASE("a training continues from the last good weights as if the data in between had never existed") {
  // The 41st example is an outlier; the losses are checked after the 48th step.
  Trainer trainer(options_of(targets({{40, 1e4F}})), LossSpikeCallback{.check_every_n_steps = 8});
  CHECK(trainer.train().global_step == 64);
  const auto& callback = trainer.callback<LossSpikeCallback>();
  CHECK((callback.state.spikes == Steps{41}));
  CHECK((callback.state.undone == std::vector<etude::UndoneSteps>{{41, 48}}));
  Trainer without(options_of(targets({}), range(40, 47)), LossSpikeCallback{.action = LossSpikeAction::warn});
  CHECK(without.train().global_step == 56);
  CHECK(weights_of(trainer) == weights_of(without));
}

TEST_CASE("a non-finite loss is a spike from the first step on, and only consecutive roll-backs add up") {
  Trainer trainer(options_of(targets({{2, NAN}, {20, INFINITY}})),
                  LossSpikeCallback{.check_every_n_steps = 4, .max_rollbacks = 1});
  trainer.train();
  const auto& callback = trainer.callback<LossSpikeCallback>();
  CHECK((callback.state.spikes == Steps{3, 21}));
  CHECK((callback.state.undone == std::vector<etude::UndoneSteps>{{1, 4}, {21, 24}}));
  auto skipped = range(0, 3);
  for (const auto i : range(20, 23)) skipped.push_back(i);
  Trainer without(options_of(targets({}), skipped), LossSpikeCallback{.action = LossSpikeAction::warn});
  without.train();
  CHECK(weights_of(trainer) == weights_of(without));
}

TEST_CASE("a spike in the last steps is found at the end of training") {
  Trainer trainer(options_of(targets({{62, NAN}})), LossSpikeCallback{.check_every_n_steps = 60});
  trainer.train();
  CHECK((trainer.callback<LossSpikeCallback>().state.undone == std::vector<etude::UndoneSteps>{{61, 64}}));
  for (const double value : weights_of(trainer)) CHECK(std::isfinite(value));
}

TEST_CASE("a spike may also only warn, or stop the training") {
  const auto y = targets({{40, 1e4F}, {50, 1e4F}});
  Trainer trainer(options_of(y),
                  LossSpikeCallback{.action = LossSpikeAction::warn, .check_every_n_steps = 8});
  trainer.train();
  CHECK((trainer.callback<LossSpikeCallback>().state.spikes == Steps{41, 51}));
  CHECK(trainer.callback<LossSpikeCallback>().state.undone.empty());
  etude::Trainer<> plain(options_of(y));
  plain.train();
  CHECK(torch::equal(trainer.model().parameters()[0], plain.model().parameters()[0]));

  Trainer stopping(options_of(y),
                   LossSpikeCallback{.action = LossSpikeAction::stop, .check_every_n_steps = 8});
  const auto output = stopping.train();
  CHECK(output.global_step == 48);
  CHECK(output.stop_reason.starts_with("the loss of step 41 is "));
}

TEST_CASE("normal noise isn't a spike") {
  torch::manual_seed(3);
  const auto y = targets({}) + torch::randn({64, 1});
  Trainer trainer(options_of(y), LossSpikeCallback{.threshold = 20, .check_every_n_steps = 8});
  trainer.train();
  CHECK(trainer.callback<LossSpikeCallback>().state.spikes.empty());
  CHECK(trainer.callback<LossSpikeCallback>().state.losses.size() == 64);
}

TEST_CASE("a training that doesn't recover after roll-backs is stopped") {
  std::map<std::int64_t, float> bad;
  for (std::int64_t i = 10; i < 64; ++i) bad[i] = NAN;
  Trainer trainer(options_of(targets(bad)), LossSpikeCallback{.check_every_n_steps = 5, .max_rollbacks = 2});
  const auto output = trainer.train();
  CHECK(output.global_step == 25);  // the first 10 steps are good; 15 and 20 roll back, 25 is one too many
  CHECK(output.stop_reason.ends_with("after 2 roll-backs in a row"));
  for (const double value : weights_of(trainer)) CHECK(std::isfinite(value));
}

TEST_CASE("the loss of a step is that of all its micro-batches, as in logs") {
  auto options = options_of(targets({}));
  options.args.gradient_accumulation_steps = 4;
  options.args.logging_strategy = etude::IntervalStrategy::steps;
  options.args.logging_steps = 1;
  Trainer trainer(options, LossSpikeCallback{.check_every_n_steps = 3});
  trainer.train();
  const auto& losses = trainer.callback<LossSpikeCallback>().state.losses;
  REQUIRE(losses.size() == 16);
  for (std::size_t i = 0; i < 16; ++i)
    CHECK(losses[i] == doctest::Approx(trainer.state().log_history[i].at("loss").get<double>()));
}

TEST_CASE("only the losses of the window are kept") {
  Trainer trainer(options_of(targets({})),
                  LossSpikeCallback{.window = 10, .min_losses = 5, .check_every_n_steps = 8});
  trainer.train();
  CHECK(trainer.callback<LossSpikeCallback>().state.losses.size() == 10);
}

TEST_CASE("a resumed run compares with the earlier losses") {
  const toy::Folder folder;
  auto options = options_of(targets({{40, 1e4F}}));
  toy::save_to(folder, options.args, 40);
  const LossSpikeCallback callback{.check_every_n_steps = 8};
  Trainer whole(options, callback);
  whole.train();
  options.model = toy::Line();
  Trainer resumed(options, callback);
  resumed.train({.resume_from_checkpoint = folder / "checkpoint-40"});
  CHECK((resumed.callback<LossSpikeCallback>().state.spikes == Steps{41}));
  CHECK(resumed.callback<LossSpikeCallback>().state.losses ==
        whole.callback<LossSpikeCallback>().state.losses);
  CHECK(weights_of(resumed) == weights_of(whole));
}

TEST_CASE("a callback that adds tensors to a checkpoint may be before or after it") {
  const auto check = [](auto&& make) {
    const toy::Folder folder;
    auto options = options_of(targets({{40, 1e4F}}));
    toy::save_to(folder, options.args, 44);  // with losses that weren't checked yet
    const auto whole = make(options);
    whole->train();
    options.model = toy::Line();
    const auto resumed = make(options);
    resumed->train({.resume_from_checkpoint = folder / "checkpoint-44"});
    CHECK((resumed->template callback<LossSpikeCallback>().state.spikes == Steps{41}));
    CHECK(resumed->template callback<etude::ModelEmaCallback>().state.num_updates == 64);
  };
  const LossSpikeCallback spikes{.check_every_n_steps = 8};
  check([&](const auto& options) {
    return std::make_unique<etude::Trainer<LossSpikeCallback, etude::ModelEmaCallback>>(options, spikes);
  });
  check([&](const auto& options) {
    return std::make_unique<etude::Trainer<etude::ModelEmaCallback, LossSpikeCallback>>(options, spikes);
  });
}

TEST_CASE("buffers are rolled back too") {
  std::mt19937 engine;
  const toy::Folder folder;
  auto options = toy::full_options(folder, engine);
  options.args.gradient_accumulation_steps = 1;
  options.args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  options.args.max_steps = 8;
  const auto x = torch::sin(torch::arange(48).to(torch::kFloat)).reshape({16, 3});
  auto y = x.sum(1, true);
  y[9].fill_(NAN);  // of the fifth step
  options.train_dataset = {x, y};
  etude::Trainer<toy::Quiet, LossSpikeCallback> trainer(options, LossSpikeCallback{.check_every_n_steps = 4});
  trainer.train();
  CHECK((trainer.callback<LossSpikeCallback>().state.undone == std::vector<etude::UndoneSteps>{{5, 8}}));
  CHECK(trainer.model().as<toy::DroppingNet>().norm->num_batches_tracked.item<std::int64_t>() == 4);
}

TEST_CASE("unsupported options and inputs are refused by name") {
  const auto refusal = [](LossSpikeCallback callback,
                          etude::OptimizerNames optim = etude::OptimizerNames::sgd) -> std::string {
    auto options = options_of(targets({}));
    options.args.optim = optim;
    Trainer trainer(options, callback);
    return toy::fault_of<etude::ArgumentError>([&] { trainer.train(); });
  };
  CHECK(refusal({.threshold = 0}) == "threshold is 0: must be above 0 and finite, or inf");
  CHECK(refusal({.window = 1}) == "window is 1: must be at least 2");
  CHECK(refusal({.min_losses = 200}) == "min_losses is 200: must be at most window, 128");
  CHECK(refusal({.check_every_n_steps = 0}) == "check_every_n_steps is 0: must be at least 1");
  CHECK(refusal({.max_rollbacks = -1}) == "max_rollbacks is -1: must be at least 0");
  CHECK(refusal({}, etude::OptimizerNames::lbfgs).starts_with("optim is lbfgs: "));
}

}  // namespace callbacks_loss_spike_test
