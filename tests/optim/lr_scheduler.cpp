#include "etude/optim/lr_scheduler.hpp"

#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <limits>
#include <memory>

#include "etude/base/error.hpp"
#include "etude/optim/rules/sgd.hpp"
#include "etude/optim/torch_optimizer.hpp"

#include <doctest/doctest.h>  // last, since LibTorch defines a CHECK too

namespace optim_lr_scheduler_test {

constexpr double infinity = std::numeric_limits<double>::infinity();

torch::Tensor parameter() { return torch::ones({1}).set_requires_grad(true); }

/// Two groups with the initial rates `lr` and 2 * `lr`.
std::unique_ptr<etude::SGD> optimizer_with(double lr) {
  return std::make_unique<etude::SGD>(std::vector<etude::ParameterGroup>{
      {.parameters = {{"a", parameter()}}, .lr = lr, .weight_decay = {}},
      {.parameters = {{"b", parameter()}}, .lr = 2 * lr, .weight_decay = {}}});
}

std::vector<double> rates(etude::Optimizer& optimizer) {
  std::vector<double> result;
  for (const auto& group : optimizer.param_groups()) result.push_back(group.lr);
  return result;
}

/// 1, 1/2, 1/4, ...
etude::Schedule halving() {
  return [](std::int64_t step) { return std::ldexp(1.0, -static_cast<int>(step)); };
}

etude::MetricLR<etude::ReduceLROnPlateau> plateau(etude::Optimizer& optimizer) {
  return {optimizer, etude::ReduceLROnPlateau({.factor = 0.5, .patience = 1})};
}

using Rates = std::vector<double>;

TEST_CASE("a schedule continues with rates that were set by hand") {
  const auto first = optimizer_with(1), second = optimizer_with(1);
  etude::LambdaLR scheduler(*first, halving());
  scheduler.step();
  first->param_groups()[1].initial_lr = 8;
  first->param_groups()[0].lr = 0.3;
  etude::LambdaLR resumed(*second, halving());
  resumed.load_state(scheduler.state());
  CHECK(resumed.step_count() == 1);
  CHECK(rates(*second) == Rates{0.3, 1});
  resumed.step();
  CHECK(rates(*second) == Rates{0.25, 2});
}

TEST_CASE("with new rates, a schedule is set to its step and the new initial rates stay") {
  const auto first = optimizer_with(1), second = optimizer_with(16);
  etude::LambdaLR scheduler(*first, halving());
  for (int i = 0; i < 3; ++i) scheduler.step();
  etude::LambdaLR resumed(*second, halving());
  resumed.load_state(scheduler.state(), /*rates_are_new=*/true);
  CHECK(resumed.step_count() == 3);
  CHECK(rates(*second) == Rates{2, 4});
  resumed.step();
  CHECK(rates(*second) == Rates{1, 2});
}

TEST_CASE("with new rates, a state of another kind of scheduler gives the step only") {
  const auto first = optimizer_with(1), second = optimizer_with(1), third = optimizer_with(1);
  auto follower = plateau(*first);
  for (int i = 0; i < 2; ++i) follower.step();
  etude::LambdaLR schedule(*second, halving());
  CHECK_THROWS_WITH_AS(schedule.load_state(follower.state()), doctest::Contains("unknown"),
                       etude::CheckpointError);
  CHECK(schedule.step_count() == 0);
  schedule.load_state(follower.state(), true);
  CHECK(rates(*second) == Rates{0.25, 0.5});

  // The reverse: a scheduler that follows a metric starts from the initial rates.
  third->param_groups()[0].lr = 0.25;
  auto another = plateau(*third);
  CHECK_THROWS_AS(another.load_state(schedule.state()), etude::CheckpointError);
  CHECK(rates(*third) == Rates{0.25, 2});
  another.load_state(schedule.state(), true);
  CHECK(another.step_count() == 2);
  CHECK(rates(*third) == Rates{1, 2});
  CHECK(another.state().at("best") == Rates{infinity});
}

TEST_CASE("with new rates, a schedule that follows a metric keeps its history of the metric") {
  const auto first = optimizer_with(1), second = optimizer_with(4);
  auto scheduler = plateau(*first);
  for (const double metric : {3.0, 4.0}) scheduler.step(metric);
  auto resumed = plateau(*second);
  resumed.load_state(scheduler.state(), true);
  CHECK(rates(*second) == Rates{4, 8});
  resumed.step(5.0);  // the second evaluation without improvement
  CHECK(rates(*second) == Rates{2, 4});
}

TEST_CASE(
    "a schedule may give each group a rate and a momentum, also when it is resumed or its rates are new") {
  const auto first = optimizer_with(1), second = optimizer_with(1), third = optimizer_with(16);
  const auto schedule = [] {
    return etude::GroupSchedule(
        [](std::int64_t step, double initial_lr) { return 3 + initial_lr / static_cast<double>(step + 1); },
        [](std::int64_t step) { return 0.5 + 0.125 * static_cast<double>(step); });
  };
  etude::LambdaLR scheduler(*first, schedule());
  CHECK(rates(*first) == Rates{4, 5});
  CHECK(first->param_groups()[1].momentum == 0.5);
  scheduler.step();
  CHECK(rates(*first) == Rates{3.5, 4});
  CHECK(first->param_groups()[1].momentum == 0.625);
  etude::LambdaLR resumed(*second, schedule());
  resumed.load_state(scheduler.state());
  CHECK(rates(*second) == Rates{3.5, 4});
  CHECK(second->param_groups()[0].momentum == 0.625);
  etude::LambdaLR renewed(*third, schedule());
  renewed.load_state(scheduler.state(), /*rates_are_new=*/true);
  CHECK(rates(*third) == Rates{11, 19});
  CHECK(third->param_groups()[0].momentum == 0.625);
}

TEST_CASE("a schedule can be moved to the step of a run that saved no schedule") {
  const auto first = optimizer_with(1), second = optimizer_with(1);
  etude::LambdaLR scheduler(*first, halving());
  scheduler.fast_forward(2);
  CHECK(scheduler.step_count() == 2);
  CHECK(rates(*first) == Rates{0.25, 0.5});
  scheduler.step();
  scheduler.fast_forward(1);
  CHECK(scheduler.step_count() == 4);
  CHECK(rates(*first) == Rates{0.0625, 0.125});
  scheduler.fast_forward(0);
  CHECK(scheduler.step_count() == 4);
  auto follower = plateau(*second);
  follower.fast_forward(7);
  CHECK(follower.step_count() == 7);
  CHECK(rates(*second) == Rates{1, 2});
  CHECK_THROWS_WITH_AS(scheduler.fast_forward(-1), doctest::Contains("steps is -1"), etude::ArgumentError);
}

TEST_CASE("torch's schedulers are stepped from the initial rates, old or new, whatever was loaded before") {
  const auto run = [](double lr, auto&& resume) {
    const torch::Tensor a = parameter();
    const auto sgd = std::make_shared<torch::optim::SGD>(std::vector{a}, lr);
    etude::TorchOptimizer optimizer(sgd, {{"a", a}});
    etude::TorchLRScheduler scheduler(optimizer, std::make_shared<torch::optim::StepLR>(*sgd, 2, 0.5));
    resume(optimizer, scheduler);
    const double now = scheduler.get_last_lr();
    CHECK(sgd->param_groups()[0].options().get_lr() == now);
    scheduler.step();
    return std::pair(now, scheduler.get_last_lr());
  };
  // LibTorch's StepLR halves the rate in its third, fifth and seventh step.
  etude::SchedulerState state;
  const auto forward = [](etude::Optimizer&, etude::LRScheduler& scheduler) { scheduler.fast_forward(6); };
  CHECK(run(1, [&](etude::Optimizer& optimizer, etude::LRScheduler& scheduler) {
          forward(optimizer, scheduler);
          state = scheduler.state();
        }) == std::pair(0.25, 0.125));
  CHECK(state.at("lr") == Rates{0.25});
  const auto restore = [&](bool rates_are_new) {
    return [&state, rates_are_new](etude::Optimizer& optimizer, etude::LRScheduler& scheduler) {
      optimizer.set_learning_rates(0, 0.25, optimizer.param_groups()[0].initial_lr);  // as load_options does
      scheduler.load_state(state, rates_are_new);
    };
  };
  CHECK(run(1, restore(false)) == std::pair(0.25, 0.125));
  CHECK(run(1, restore(true)) == std::pair(0.25, 0.125));
  CHECK(run(8, restore(true)) == std::pair(2.0, 1.0));
}

TEST_CASE("impossible numbers are refused by name, and nothing is changed") {
  const auto optimizer = optimizer_with(1);
  etude::LambdaLR scheduler(*optimizer, halving());
  scheduler.step();
  const etude::SchedulerState good = scheduler.state();
  const auto refuses = [&](const char* name, const Rates& values, const char* text,
                           bool rates_are_new = false) {
    etude::SchedulerState bad = good;
    bad[name] = values;
    CHECK_THROWS_WITH_AS(scheduler.load_state(bad, rates_are_new), doctest::Contains(text),
                         etude::CheckpointError);
    CHECK(scheduler.state() == good);
  };
  const double not_a_number = std::numeric_limits<double>::quiet_NaN();
  for (const bool rates_are_new : {false, true}) {
    for (const double steps : {-1.0, 0.5, 9007199254740992.0, infinity, not_a_number})
      refuses("step_count", {steps}, "'step_count' is", rates_are_new);
    refuses("step_count", {}, "must have 1 number 'step_count', but has 0", rates_are_new);
  }
  refuses("lr", {1, -0.5}, "'lr' is -0.5: must be at least 0 and finite");
  refuses("lr", {1, infinity}, "'lr' is inf");
  refuses("initial_lr", {1, not_a_number}, "'initial_lr' is nan");
  refuses("lr", {1}, "must have 2 numbers 'lr', but has 1");
  refuses("momentum", {1}, "has an unknown 'momentum'");
}

}  // namespace optim_lr_scheduler_test
