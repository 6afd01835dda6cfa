#include <doctest/doctest.h>

#include <cmath>
#include <numbers>
#include <vector>
#include "etude/base/error.hpp"
#include "etude/optim/schedules.hpp"

namespace optim_schedules_test {

using etude::SchedulerType;

/// The learning rates from step 0 on, with an initial rate of 10.
std::vector<double> rates(const etude::Schedule& schedule, std::size_t count) {
  std::vector<double> result;
  for (std::size_t step = 0; step < count; ++step) {
    result.push_back(10 * schedule(static_cast<std::int64_t>(step)));
  }
  return result;
}

void check(const etude::Schedule& schedule, const std::vector<double>& expected) {
  const auto actual = rates(schedule, expected.size());
  for (std::size_t step = 0; step < expected.size(); ++step) {
    CAPTURE(step);
    CHECK(std::abs(actual[step] - expected[step]) <= 1e-2);
  }
}

/// The factor for an initial learning rate `lr`.
etude::Schedule make(SchedulerType type, std::int64_t warmup, std::int64_t total,
                     const nlohmann::json& kwargs = nullptr, double lr = 10) {
  const auto schedule =
      etude::make_schedule(type, {.warmup_steps = warmup, .total_steps = total, .learning_rate = lr}, kwargs);
  return [=](std::int64_t step) { return schedule.lr(step, lr) / lr; };
}

TEST_CASE("each schedule gives the reference's values") {
  check(make(SchedulerType::constant, 4, 10), {10, 10, 10, 10, 10, 10});
  check(make(SchedulerType::constant_with_warmup, 4, 10), {0, 2.5, 5, 7.5, 10, 10, 10, 10, 10, 10});
  check(make(SchedulerType::linear, 2, 10), {0, 5, 10, 8.75, 7.5, 6.25, 5, 3.75, 2.5, 1.25, 0, 0});
  check(make(SchedulerType::cosine, 2, 10), {0, 5, 10, 9.61, 8.53, 6.91, 5, 3.08, 1.46, .38});
  check(make(SchedulerType::cosine_with_restarts, 2, 10, {{"num_cycles", 2}}),
        {0, 5, 10, 8.53, 5, 1.46, 10, 8.53, 5, 1.46, 0});
  check(make(SchedulerType::polynomial, 2, 10, {{"power", 2.0}, {"lr_end", 1e-7}}),
        {0, 5, 10, 7.656, 5.625, 3.906, 2.5, 1.406, .625, .156});
  check(make(SchedulerType::inverse_sqrt, 2, 10), {0, 5, 10, 8.165, 7.071, 6.325, 5.774, 5.345, 5, 4.714});
  check(make(SchedulerType::warmup_stable_decay, 2, 10, {{"num_decay_steps", 4}}),
        {0, 5, 10, 10, 10, 10, 10, 8.536, 5, 1.464, 0, 0});
  check(make(SchedulerType::warmup_stable_decay, 2, 99,
             {{"num_stable_steps", 4}, {"num_decay_steps", 4}, {"decay_type", "1-sqrt"}}),
        {0, 5, 10, 10, 10, 10, 10, 5, 2.929, 1.340, 0});
  check(make(SchedulerType::cosine_with_min_lr, 2, 10, {{"min_lr_rate", 0.1}}),
        {0, 5, 10, 9.658, 8.682, 7.222, 5.5, 3.778, 2.318, 1.343, 1});
  check(make(SchedulerType::cosine_warmup_with_min_lr, 2, 10, {{"min_lr_rate", 0.1}}),
        {5, 10, 9.658, 8.682, 7.222, 5.5, 3.778, 2.318, 1.343, 1});
}

TEST_CASE("cosine_with_restarts begins each of its cycles at the peak") {
  for (std::int64_t cycles = 1; cycles <= 40; ++cycles)
    for (const std::int64_t length : {1, 3, 7, 49, 100})
      for (const std::int64_t warmup : {0, 5}) {
        const auto total = warmup + cycles * length;
        const auto schedule =
            make(SchedulerType::cosine_with_restarts, warmup, total, {{"num_cycles", cycles}});
        for (auto step = warmup; step < total; step += length) REQUIRE(schedule(step) == 1);
        CHECK(schedule(total) == 0);
      }
  // The number of cycles may be a fraction: here they begin at steps 0, 10 and 20 of 25.
  const auto broken = make(SchedulerType::cosine_with_restarts, 0, 25, {{"num_cycles", 2.5}});
  for (const std::int64_t step : {0, 10, 20}) CHECK(broken(step) == 1);
  CHECK(broken(15) == doctest::Approx(0.5));
  const auto tenths = make(SchedulerType::cosine_with_restarts, 0, 7, {{"num_cycles", 0.7}});
  CHECK(tenths(6) == doctest::Approx(0.5 * (1 + std::cos(0.6 * std::numbers::pi))));
}

TEST_CASE("min_lr is reached exactly") {
  const auto warm = make(SchedulerType::cosine_warmup_with_min_lr, 2, 10, {{"min_lr", 1e-5}}, 0.2);
  CHECK(0.2 * warm(0) == doctest::Approx(0.1));
  CHECK(0.2 * warm(1) == doctest::Approx(0.2));
  CHECK(0.2 * warm(9) == doctest::Approx(1e-5).epsilon(1e-9));
  const auto plain = make(SchedulerType::cosine_with_min_lr, 2, 10, {{"min_lr", 1e-5}}, 0.2);
  CHECK(0.2 * plain(10) == doctest::Approx(1e-5).epsilon(1e-9));
}

TEST_CASE("schedules agree with their formulas over many sizes") {
  for (std::int64_t warmup : {0, 1, 7, 30}) {
    for (std::int64_t total : {1, 30, 31, 100}) {
      for (std::int64_t step = warmup; step <= total; ++step) {
        const double s = double(step), w = double(warmup), t = double(total), d = std::max(1.0, t - w);
        CAPTURE(warmup);
        CAPTURE(total);
        CAPTURE(step);
        CHECK(make(SchedulerType::linear, warmup, total)(step) ==
              doctest::Approx(std::max(0.0, (t - s) / d)));
        CHECK(make(SchedulerType::cosine, warmup, total, {{"num_cycles", 1.5}})(step) ==
              doctest::Approx(0.5 * (1 + std::cos(std::numbers::pi * 3 * (s - w) / d))));
        const double p = (s - w) / d;
        CHECK(make(SchedulerType::cosine_with_restarts, warmup, total, {{"num_cycles", 3}})(step) ==
              doctest::Approx(p >= 1 ? 0 : 0.5 * (1 + std::cos(std::numbers::pi * std::fmod(3 * p, 1.0)))));
        CHECK(make(SchedulerType::polynomial, warmup, total, {{"lr_end", 2}, {"power", 1.7}})(step) ==
              doctest::Approx((8 * std::pow(1 - p, 1.7) + 2) / 10));
        CHECK(make(SchedulerType::inverse_sqrt, warmup, total, {{"timescale", 50}})(step) ==
              doctest::Approx(1 / std::sqrt((s + 50 - w) / 50)));
      }
    }
  }
  CHECK(make(SchedulerType::polynomial, 2, 10, {{"lr_end", 2}})(11) == doctest::Approx(0.2));
  CHECK(make(SchedulerType::inverse_sqrt, 0, 10)(10000) == doctest::Approx(1 / std::sqrt(2.0)));
}

TEST_CASE("warmup_stable_decay rises and falls as configured") {
  const auto ramp = [](const char* type) {
    return make(SchedulerType::warmup_stable_decay, 4, 16,
                {{"num_decay_steps", 4}, {"warmup_type", type}, {"decay_type", type}, {"min_lr_ratio", 0.2}});
  };
  const auto linear = ramp("linear"), cosine = ramp("cosine"), root = ramp("1-sqrt");
  CHECK(linear(0) == doctest::Approx(0.2));
  CHECK(linear(1) == doctest::Approx(0.4));
  CHECK(linear(13) == doctest::Approx(0.8));
  CHECK(cosine(1) == doctest::Approx(0.2 + 0.8 * 0.5 * (1 - std::sqrt(0.5))));
  CHECK(cosine(13) == doctest::Approx(0.2 + 0.8 * 0.5 * (1 + std::sqrt(0.5))));
  // num_cycles is that of the decay only.
  const auto waves = make(SchedulerType::warmup_stable_decay, 4, 16,
                          {{"num_decay_steps", 4}, {"warmup_type", "cosine"}, {"num_cycles", 1.5}});
  CHECK(waves(2) == doctest::Approx(0.5));
  CHECK(waves(13) == doctest::Approx(0.5 * (1 + std::cos(0.75 * std::numbers::pi))));
  CHECK(root(3) == doctest::Approx(0.2 + 0.8 * 0.5));
  CHECK(root(13) == doctest::Approx(0.2 + 0.8 * 0.5));
  CHECK(root(11) == 1);
  CHECK(root(16) == doctest::Approx(0.2));
}

TEST_CASE("cosine_warmup_with_min_lr may begin above zero") {
  const auto schedule =
      make(SchedulerType::cosine_warmup_with_min_lr, 5, 20, {{"min_lr_rate", 0.1}, {"warmup_lr_rate", 0.2}});
  CHECK(schedule(0) == doctest::Approx(0.2));
  CHECK(schedule(2) == doctest::Approx(0.6));
  CHECK(schedule(4) == doctest::Approx(1.0));
}

TEST_CASE("errors name options that are unknown, missing, contradictory or of the wrong kind") {
  const auto fails = [](SchedulerType type, const nlohmann::json& kwargs, const char* text) {
    CHECK_THROWS_WITH_AS(make(type, 2, 10, kwargs), doctest::Contains(text), etude::ArgumentError);
  };
  fails(SchedulerType::cosine, {{"num_cycle", 1}},
        "lr_scheduler_kwargs of cosine: 'num_cycle' is unknown: must be one of num_cycles");
  fails(SchedulerType::cosine, {{"num_cycles", "many"}},
        "lr_scheduler_kwargs of cosine: num_cycles is \"many\": must be a number");
  fails(SchedulerType::linear, {{"power", 2}},
        "lr_scheduler_kwargs of linear is {\"power\":2}: must be empty, since there are no options");
  fails(SchedulerType::polynomial, {{"lr_end", 10}}, "lr_end is 10: must be below the learning rate, 10");
  fails(SchedulerType::cosine_with_min_lr, nullptr, "exactly one of min_lr and min_lr_rate");
  fails(SchedulerType::cosine_with_min_lr, {{"min_lr", 1}, {"min_lr_rate", 0.1}},
        "exactly one of min_lr and min_lr_rate");
  fails(SchedulerType::warmup_stable_decay, nullptr, "num_decay_steps must be given");
  fails(SchedulerType::warmup_stable_decay, {{"num_decay_steps", 1.5}},
        "num_decay_steps is 1.5: must be a whole number");
  fails(SchedulerType::warmup_stable_decay, {{"num_decay_steps", 4}, {"decay_type", "sqrt"}},
        "decay_type is 'sqrt': must be one of linear, cosine, 1-sqrt");
  fails(SchedulerType::greedy, nullptr, "greedy follows a metric");
  fails(SchedulerType::cosine, {1, 2}, "must be a JSON object");
}

}  // namespace optim_schedules_test
