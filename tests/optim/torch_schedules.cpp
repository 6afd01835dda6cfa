#include "etude/optim/torch_schedules.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/optim/schedules.hpp"

namespace optim_torch_schedules_test {

using etude::SchedulerType;
using nlohmann::json;

etude::GroupSchedule make(SchedulerType type, const char* kwargs, std::int64_t warmup = 0,
                          std::int64_t total = 100) {
  return etude::make_schedule(type, {.warmup_steps = warmup, .total_steps = total, .learning_rate = 8},
                              json::parse(kwargs));
}

/// The learning rates from step 0 on, with an initial rate of 8.
void check(const etude::GroupSchedule& schedule, const std::vector<double>& expected) {
  for (std::size_t step = 0; step < expected.size(); ++step) {
    CAPTURE(step);
    const double lr = schedule.lr(static_cast<std::int64_t>(step), 8);
    CHECK(std::abs(lr - expected[step]) <= 1e-12 * expected[step]);
  }
}

void check_momentum(const etude::GroupSchedule& schedule, const std::vector<double>& expected) {
  REQUIRE(schedule.momentum);
  for (std::size_t step = 0; step < expected.size(); ++step) {
    CAPTURE(step);
    CHECK(schedule.momentum(static_cast<std::int64_t>(step)) == doctest::Approx(expected[step]));
  }
}

TEST_CASE("step_lr, multi_step_lr, constant_lr and exponential_lr multiply the rate at their steps") {
  check(make(SchedulerType::step_lr, R"({"step_size": 3, "gamma": 0.5})"), {8, 8, 8, 4, 4, 4, 2, 2, 2, 1});
  check(make(SchedulerType::step_lr, R"({"step_size": 1})"), {8, 0.8, 0.08});
  check(make(SchedulerType::multi_step_lr, R"({"milestones": [4, 1, 4], "gamma": 0.5})"),
        {8, 4, 4, 4, 1, 1, 1});
  check(make(SchedulerType::multi_step_lr, R"({"milestones": [0], "gamma": 0.5})"), {4, 4});
  check(make(SchedulerType::constant_lr, R"({"factor": 0.25, "total_iters": 2})"), {2, 2, 8, 8});
  check(make(SchedulerType::constant_lr, "{}"), {8. / 3, 8. / 3, 8. / 3, 8. / 3, 8. / 3, 8});
  check(make(SchedulerType::constant_lr, R"({"factor": 0, "total_iters": 1})"), {0, 8});
  check(make(SchedulerType::exponential_lr, R"({"gamma": 0.5})"), {8, 4, 2, 1, 0.5});
}

TEST_CASE("linear_lr and polynomial_lr reach their end and stay there") {
  check(make(SchedulerType::linear_lr, R"({"start_factor": 0.5, "total_iters": 4})"), {4, 5, 6, 7, 8, 8, 8});
  check(make(SchedulerType::linear_lr, R"({"start_factor": 1, "end_factor": 0, "total_iters": 4})"),
        {8, 6, 4, 2, 0, 0});
  check(make(SchedulerType::polynomial_lr, "{}"), {8, 6.4, 4.8, 3.2, 1.6, 0, 0});
  check(make(SchedulerType::polynomial_lr, R"({"total_iters": 4, "power": 2})"), {8, 4.5, 2, 0.5, 0, 0});
}

TEST_CASE("the cosines swing, or restart, between each group's rate and eta_min") {
  const double high = 5 + 3 * std::sqrt(0.5), low = 5 - 3 * std::sqrt(0.5);
  const auto swinging = make(SchedulerType::cosine_annealing_lr, R"({"T_max": 4, "eta_min": 2})");
  check(swinging, {8, high, 5, low, 2, low, 5, high, 8, high, 5, low, 2});
  CHECK(swinging.lr(2, 4) == doctest::Approx(3));
  CHECK(swinging.lr(4, 1) == doctest::Approx(2));
  check(make(SchedulerType::cosine_annealing_lr, R"({"T_max": 1})"), {8, 0, 8, 0});
  const auto restarting =
      make(SchedulerType::cosine_annealing_warm_restarts, R"({"T_0": 2, "T_mult": 2, "eta_min": 2})");
  check(restarting, {8, 5, 8, high, 5, low, 8});
  for (const std::int64_t start : {6, 14, 30, 62}) CHECK(restarting.lr(start, 8) == 8);
  check(make(SchedulerType::cosine_annealing_warm_restarts, R"({"T_0": 2})"), {8, 4, 8, 4, 8});
  // 3 * 10^18 steps, 3 * 10^36 steps, ...: more than 64 bits hold.
  const auto long_ones =
      make(SchedulerType::cosine_annealing_warm_restarts, R"({"T_0": 3, "T_mult": 1000000000000000000})");
  CHECK(long_ones.lr(std::int64_t{1} << 62, 8) > 0);
}

TEST_CASE("cyclic_lr rises and falls in each of its modes, and the momentum does the opposite") {
  check(make(SchedulerType::cyclic_lr, R"({"base_lr": 2, "max_lr": 6, "step_size_up": 2})"),
        {2, 4, 6, 4, 2, 4, 6});
  check(make(SchedulerType::cyclic_lr, R"({"base_lr": 2, "step_size_up": 3, "step_size_down": 1})"),
        {2, 4, 6, 8, 2, 4});
  check(make(SchedulerType::cyclic_lr, R"({"base_lr": 2, "step_size_up": 2, "step_size_down": 0})"),
        {2, 5, 2, 5});
  const auto halved = make(SchedulerType::cyclic_lr,
                           R"({"base_lr": 2, "max_lr": 6, "step_size_up": 1, "mode": "triangular2",
               "base_momentum": 0.5, "max_momentum": 0.75})");
  check(halved, {2, 6, 2, 4, 2, 3, 2, 2.5});
  check_momentum(halved, {0.75, 0.5, 0.75, 0.625, 0.75, 0.6875});
  check(make(SchedulerType::cyclic_lr,
             R"({"base_lr": 2, "max_lr": 6, "step_size_up": 2, "mode": "exp_range", "gamma": 0.5})"),
        {2, 3, 3, 2.25, 2, 2 + 2. / 32, 2 + 4. / 64});
  CHECK(!make(SchedulerType::cyclic_lr, R"({"base_lr": 0, "cycle_momentum": false})").momentum);
}

TEST_CASE("one_cycle_lr rises to the peak and falls to its end in the last step, where it stays") {
  // Up to step 0.5 * 9 - 1 = 3.5, then down to step 8.
  const auto two = make(SchedulerType::one_cycle_lr,
                        R"({"max_lr": 7, "total_steps": 9, "pct_start": 0.5, "anneal_strategy": "linear",
                            "div_factor": 7, "final_div_factor": 2,
                            "base_momentum": 0.5, "max_momentum": 0.85})");
  const double fall = 6.5 / 4.5;
  check(two, {1, 1 + 6 / 3.5, 1 + 12 / 3.5, 1 + 18 / 3.5, 7 - 0.5 * fall, 7 - 1.5 * fall, 7 - 2.5 * fall,
              7 - 3.5 * fall, 0.5, 0.5, 0.5});
  check_momentum(two, {0.85, 0.75, 0.65, 0.55});
  CHECK(two.momentum(8) == doctest::Approx(0.85));
  // Up to step 0.4 * 10 - 1 = 3, down to step 2 * 0.4 * 10 - 2 = 6, and further down to step 9.
  const auto three = make(SchedulerType::one_cycle_lr,
                          R"({"max_lr": 7, "total_steps": 10, "pct_start": 0.4, "div_factor": 7,
                              "final_div_factor": 10, "three_phase": true})");
  check(three, {1, 2.5, 5.5, 7, 5.5, 2.5, 1, 0.775, 0.325, 0.1, 0.1});
  CHECK(three.momentum(3) == doctest::Approx(0.85));
  CHECK(three.momentum(8) == doctest::Approx(0.95));
  // The peak is each group's rate, and the end that of the training.
  const auto own = make(SchedulerType::one_cycle_lr, R"({"anneal_strategy": "linear"})", 0, 10);
  CHECK(own.lr(0, 5) == doctest::Approx(0.2));
  CHECK(own.lr(2, 5) == doctest::Approx(5));
  CHECK(own.lr(9, 5) == doctest::Approx(2e-5));
  // Phases without length.
  const auto short_ones = R"({"max_lr": 7, "pct_start": 0.1, "div_factor": 7})";
  CHECK(make(SchedulerType::one_cycle_lr, short_ones, 0, 10).lr(0, 8) == 1);
  CHECK(make(SchedulerType::one_cycle_lr, R"({"pct_start": 1})", 0, 1).lr(0, 25) == 1);
  CHECK(make(SchedulerType::one_cycle_lr, "{}", 0, 1).lr(0, 25) == doctest::Approx(1e-4));
}

TEST_CASE("torch's schedules begin after the warmup, which rises to their first rate") {
  const auto stepped = make(SchedulerType::step_lr, R"({"step_size": 2, "gamma": 0.5})", 4);
  check(stepped, {0, 2, 4, 6, 8, 8, 4, 4, 2});
  const auto cycle =
      make(SchedulerType::one_cycle_lr,
           R"({"max_lr": 4, "pct_start": 0.6, "div_factor": 2, "anneal_strategy": "linear"})", 2, 7);
  check(cycle, {0, 1, 2, 3, 4});
  CHECK(cycle.lr(6, 8) == doctest::Approx(2e-4));
  check_momentum(cycle, {0.95, 0.95, 0.95, 0.9, 0.85});
}

TEST_CASE("sequential_lr runs one schedule after another, each from its step 0") {
  const auto sequence = make(SchedulerType::sequential_lr, R"({
    "schedulers": [{"type": "linear_lr", "start_factor": 0.25, "total_iters": 3},
                   {"type": "linear"},
                   {"type": "exponential_lr", "gamma": 0.5}],
    "milestones": [3, 7]})");
  check(sequence, {2, 4, 6, 8, 6, 4, 2, 8, 4, 2, 1});
  // Equal milestones leave a schedule out, and the last one ends with the training.
  check(make(SchedulerType::sequential_lr, R"({
    "schedulers": [{"type": "constant"}, {"type": "step_lr", "step_size": 1},
                   {"type": "linear", "warmup_steps": 2}],
    "milestones": [2, 2]})",
             0, 8),
        {8, 8, 0, 4, 8, 6, 4, 2, 0});
  check(make(SchedulerType::sequential_lr,
             R"({"schedulers": [{"type": "constant"}, {"type": "exponential_lr", "gamma": 0.5}],
                 "milestones": [0]})"),
        {8, 4, 2});
  // As a part of another one, with a warmup.
  check(make(SchedulerType::sequential_lr, R"({
    "schedulers": [{"type": "sequential_lr", "milestones": [1], "warmup_steps": 2,
                    "schedulers": [{"type": "constant"}, {"type": "constant_lr", "factor": 0.5}]},
                   {"type": "constant"}],
    "milestones": [4]})"),
        {0, 4, 8, 4, 8, 8});
}

TEST_CASE("sequential_lr keeps the momentum where a schedule doesn't change it") {
  const auto sequence = make(SchedulerType::sequential_lr, R"({
    "schedulers": [{"type": "constant"},
                   {"type": "cyclic_lr", "base_lr": 2, "step_size_up": 2},
                   {"type": "constant"}],
    "milestones": [2, 5]})");
  check_momentum(sequence, {0.9, 0.9, 0.9, 0.85, 0.8, 0.8, 0.8});
  CHECK(!make(SchedulerType::sequential_lr, R"({"schedulers": [{"type": "constant"}], "milestones": []})")
             .momentum);
}

TEST_CASE("chained_scheduler hands the rate of each schedule to the next one") {
  check(make(SchedulerType::chained_scheduler, R"({
    "schedulers": [{"type": "constant_lr", "factor": 0.5, "total_iters": 2},
                   {"type": "exponential_lr", "gamma": 0.5}]})"),
        {4, 2, 2, 1, 0.5});
  const auto floor = make(SchedulerType::chained_scheduler, R"({
    "schedulers": [{"type": "step_lr", "step_size": 2, "gamma": 0.5},
                   {"type": "cosine_annealing_lr", "T_max": 4, "eta_min": 2},
                   {"type": "cyclic_lr", "base_lr": 0, "step_size_up": 1}]})");
  check(floor, {0, 5 + 3 * std::sqrt(0.5), 0, 3 - std::sqrt(0.5), 0});
  check_momentum(floor, {0.9, 0.8, 0.9});
}

TEST_CASE("a schedule says whether it depends on the steps of the training") {
  using enum SchedulerType;
  const auto needs = [](SchedulerType type, const char* kwargs) {
    return etude::needs_total_steps(type, json::parse(kwargs));
  };
  CHECK(needs(linear, "null"));
  CHECK(!needs(constant, "{}"));
  CHECK(!needs(greedy, "{}"));
  CHECK(!needs(step_lr, R"({"step_size": 3})"));
  CHECK(needs(one_cycle_lr, "null"));
  CHECK(!needs(one_cycle_lr, R"({"total_steps": 10})"));
  const auto cosine_first =
      R"({"schedulers": [{"type": "cosine"}, {"type": "constant"}], "milestones": [9]})";
  CHECK(!needs(sequential_lr, cosine_first));
  CHECK(needs(sequential_lr,
              R"({"schedulers": [{"type": "constant"}, {"type": "cosine"}], "milestones": [9]})"));
  CHECK(needs(chained_scheduler, R"({"schedulers": [{"type": "cosine"}, {"type": "constant"}]})"));
  CHECK(
      !needs(chained_scheduler, R"({"schedulers": [{"type": "constant_with_warmup", "warmup_steps": 3}]})"));
  CHECK(
      needs(chained_scheduler, R"({"schedulers": [{"type": "constant_with_warmup", "warmup_steps": 0.1}]})"));
}

TEST_CASE("errors name the option, its value and what is allowed, in parts too") {
  const auto fault = [](SchedulerType type, const char* kwargs) {
    return toy::fault_of<etude::ArgumentError>([&] { make(type, kwargs); });
  };
  using enum SchedulerType;
  CHECK(fault(step_lr, "{}") == "lr_scheduler_kwargs of step_lr: step_size is 0: must be at least 1");
  CHECK(fault(step_lr, R"({"step": 3})") ==
        "lr_scheduler_kwargs of step_lr: 'step' is unknown: must be one of step_size, gamma; did you mean "
        "'step_size'?");
  CHECK(fault(multi_step_lr, "{}") ==
        "lr_scheduler_kwargs of multi_step_lr: milestones is empty: must not be empty");
  CHECK(fault(multi_step_lr, R"({"milestones": [3, -1]})") ==
        "lr_scheduler_kwargs of multi_step_lr: milestones has -1: must be at least 0");
  CHECK(fault(linear_lr, R"({"start_factor": 0})") ==
        "lr_scheduler_kwargs of linear_lr: start_factor is 0: must be above 0 and at most 1");
  CHECK(fault(cosine_annealing_lr, R"({"T_max": 0, "eta_min": -1})") ==
        "lr_scheduler_kwargs of cosine_annealing_lr: T_max is 0: must be at least 1\n"
        "lr_scheduler_kwargs of cosine_annealing_lr: eta_min is -1: must be at least 0 and finite");
  CHECK(fault(cyclic_lr, "{}") == "lr_scheduler_kwargs of cyclic_lr: base_lr must be given");
  CHECK(toy::contains(fault(cyclic_lr, R"({"base_lr": 0, "mode": "square"})"),
                      "must be one of triangular, triangular2, exp_range"));
  CHECK(fault(one_cycle_lr, R"({"anneal_strategy": "cosine"})") ==
        "lr_scheduler_kwargs of one_cycle_lr: anneal_strategy is 'cosine': must be one of cos, linear");
  CHECK(fault(sequential_lr, "{}") ==
        "lr_scheduler_kwargs of sequential_lr: schedulers is empty: must not be empty");
  CHECK(fault(sequential_lr, R"({"schedulers": [{"type": "constant"}], "milestones": [3]})") ==
        "lr_scheduler_kwargs of sequential_lr: the number of milestones is 1: must be 0, one fewer than "
        "schedulers");
  CHECK(fault(sequential_lr,
              R"({"schedulers": [{"type": "constant"}, {"type": "constant"}], "milestones": [-3]})") ==
        "lr_scheduler_kwargs of sequential_lr: milestones has -3: must be at least 0 and in rising order");
  const auto in_part = [&](const char* part) {
    return fault(chained_scheduler,
                 (R"({"schedulers": [{"type": "constant"}, )" + std::string(part) + "]}").c_str());
  };
  const std::string where = "lr_scheduler_kwargs of chained_scheduler: schedulers[1]";
  CHECK(in_part("3") == where + " is 3: must be a JSON object with a type");
  CHECK(in_part("{}") == where + " is {}: must be a JSON object with a type");
  CHECK(in_part(R"({"type": "exponential_lr"})") ==
        where + " (exponential_lr): gamma is 0: must be above 0 and finite");
  CHECK(in_part(R"({"type": "greedy"})") ==
        where + " (greedy): greedy follows a metric and isn't a function of the step");
  CHECK(in_part(R"({"type": "constant", "gamma": 1})") ==
        where + " (constant) is {\"gamma\":1}: must be empty, since there are no options");
  CHECK(in_part(R"({"type": "linear", "warmup_steps": 1.5})") ==
        where + ": warmup_steps is 1.5: must be a whole number, or below 1");
  CHECK(toy::contains(in_part(R"({"type": "linaer"})"), "type is \"linaer\": must be one of linear, cosine"));
  CHECK(toy::fault_of<etude::ArgumentError>([] { (void)etude::StepLROptions{}.schedule({}); }) ==
        "lr_scheduler_kwargs: step_size is 0: must be at least 1");
}

}  // namespace optim_torch_schedules_test
