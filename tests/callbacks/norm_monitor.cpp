#include "etude/callbacks/norm_monitor.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "common/logged.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace callbacks_norm_monitor_test {

using Values = std::vector<double>;

/// Two lines in sequence.
struct TwoImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return second->forward(first->forward(x)); }
  toy::Line first = register_module("first", toy::Line());
  toy::Line second = register_module("second", toy::Line());
};
TORCH_MODULE(Two);

/// One step on the points (0, 1) and (.5, 2), in one micro-batch or in two.
etude::TrainingArguments arguments(std::int64_t accumulation = 1) {
  auto args = toy::arguments();
  args.gradient_accumulation_steps = accumulation;
  args.per_device_train_batch_size = 2 / accumulation;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  return args;
}

template <class Monitor>
etude::TrainerState after_training(const etude::TrainerOptions& options, Monitor monitor) {
  etude::Trainer<Monitor> trainer(options, monitor);
  trainer.train();
  return trainer.state();
}

// At w = b = 0 the gradient of the mean of (y - w x - b)^2 is -1 for w (the mean of 0 and -2) and -3 for b
// (of -2 and -4).
constexpr double before_clipping = 3.1622776601683795;

TEST_CASE("gradient norms are those of all micro-batches, before clipping and after") {
  using enum etude::NormDetail;
  for (const std::int64_t accumulation : {1, 2}) {
    auto args = arguments(accumulation);
    args.max_grad_norm = .5;
    auto state = after_training(toy::options(args),
                                etude::GradientNormMonitor{.norm_detail = parameter, .every_n_steps = 1});
    CHECK(toy::logged(state, "l2_norm/grad/global").at(0) == doctest::Approx(before_clipping));
    CHECK(toy::logged(state, "l2_norm/grad/weight").at(0) == doctest::Approx(1));
    CHECK(toy::logged(state, "l2_norm/grad/bias").at(0) == doctest::Approx(3));
    CHECK(toy::logged(state, "grad_norm").at(0) == doctest::Approx(before_clipping));
    state = after_training(toy::options(args),
                           etude::ClippedGradientNormMonitor{.norm_detail = parameter, .every_n_steps = 1});
    CHECK(toy::logged(state, "l2_norm/grad/global").at(0) == doctest::Approx(.5));
    CHECK(toy::logged(state, "l2_norm/grad/weight").at(0) == doctest::Approx(.5 / before_clipping));
    CHECK(toy::logged(state, "l2_norm/grad/bias").at(0) == doctest::Approx(1.5 / before_clipping));
  }
}

TEST_CASE("norms of layers, and only the global one") {
  auto options = toy::options(arguments());
  const Two net;
  {
    const torch::NoGradGuard no_grad;
    net->second->weight.fill_(2);
  }
  options.model = net;
  // The output is 0 at first, so its gradients are -1 and -3, as above; the outer weight doubles them for the
  // inner line.
  const etude::GradientNormMonitor by_layer{.norm_detail = etude::NormDetail::layer, .every_n_steps = 1};
  const auto state = after_training(options, by_layer);
  CHECK(toy::logged(state, "l2_norm/grad/first").at(0) == doctest::Approx(std::hypot(2, 6)));
  CHECK(toy::logged(state, "l2_norm/grad/second").at(0) == doctest::Approx(3));  // its weight's input is 0
  CHECK(toy::logged(state, "l2_norm/grad/global").at(0) == doctest::Approx(7));
  CHECK_FALSE(toy::logged_any(state, "l2_norm/grad/first."));
  const auto coarse =
      after_training(toy::options(arguments()), etude::GradientNormMonitor{.every_n_steps = 1});
  CHECK(toy::logged(coarse, "l2_norm/grad/global").size() == 1);
  CHECK_FALSE(toy::logged_any(coarse, "l2_norm/grad/weight"));
}

TEST_CASE("a frozen parameter has a norm, but its gradient doesn't") {
  auto options = toy::options(arguments());
  const toy::Line line;
  line->weight.set_requires_grad(false);
  line->weight.fill_(-3);
  options.model = line;
  auto state = after_training(
      options, etude::GradientNormMonitor{.norm_detail = etude::NormDetail::parameter, .every_n_steps = 1});
  CHECK_FALSE(toy::logged_any(state, "l2_norm/grad/weight"));
  CHECK(toy::logged(state, "l2_norm/grad/bias").size() == 1);
  state = after_training(
      options, etude::ParameterNormMonitor{.norm_detail = etude::NormDetail::parameter, .every_n_steps = 1});
  CHECK(toy::logged(state, "l2_norm/param/weight") == Values{3});
  const double bias = std::abs(line->bias.item<double>());
  CHECK(toy::logged(state, "l2_norm/param/bias").at(0) == doctest::Approx(bias));
  CHECK(toy::logged(state, "l2_norm/param/global").at(0) == doctest::Approx(std::hypot(3, bias)));
}

TEST_CASE("the monitors measure at an interval of steps") {
  auto args = arguments();
  args.num_train_epochs = 5;
  CHECK(toy::logged_at(after_training(toy::options(args), etude::GradientNormMonitor{.every_n_steps = 2}),
                       "l2_norm/grad/global") == std::vector{2, 4});
  CHECK(toy::logged_at(
            after_training(toy::options(args), etude::ClippedGradientNormMonitor{.every_n_steps = 2}),
            "l2_norm/grad/global") == std::vector{2, 4});
  CHECK(toy::logged_at(after_training(toy::options(args), etude::ParameterNormMonitor{.every_n_steps = 2}),
                       "l2_norm/param/global") == std::vector{2, 4});
  args.max_steps = 1;
  CHECK_THROWS_WITH_AS(after_training(toy::options(args), etude::ParameterNormMonitor{.every_n_steps = 0}),
                       "every_n_steps is 0: must be a whole number of steps >= 1, or a fraction of all "
                       "steps between 0 and 1",
                       etude::ArgumentError);
}

TEST_CASE("the monitors measure after epochs too: gradients in the next step, weights at once") {
  auto args = arguments();
  args.per_device_train_batch_size = 1;
  args.num_train_epochs = 3;  // of 2 steps each
  const auto looks = [&](auto monitor, const char* name) {
    return toy::logged_at(after_training(toy::options(args), monitor), name);
  };
  const auto* gradients = "l2_norm/grad/global";
  const auto* weights = "l2_norm/param/global";
  using Steps = std::vector<int>;
  CHECK(looks(etude::ParameterNormMonitor{.every_n_steps = "1ep"}, weights) == Steps{2, 4, 6});
  CHECK(looks(etude::GradientNormMonitor{.every_n_steps = "1ep"}, gradients) == Steps{3, 5});
  CHECK(looks(etude::ClippedGradientNormMonitor{.every_n_steps = "1ep"}, gradients) == Steps{3, 5});
  CHECK(looks(etude::GradientNormMonitor{.every_n_steps = 0.5}, gradients) == Steps{3, 6});
  CHECK(looks(etude::GradientNormMonitor{.every_n_steps = "1h"}, gradients) == Steps{});
  CHECK_THROWS_WITH_AS(looks(etude::GradientNormMonitor{.every_n_steps = "0ep"}, gradients),
                       "every_n_steps is 0ep: must be positive and finite", etude::ArgumentError);
}

TEST_CASE("measuring before clipping lets the trainer clip inside the optimizer's step") {
  using Trainer = etude::Trainer<etude::GradientNormMonitor>;
  CHECK_FALSE(Trainer::handles<etude::GradientsClipped>);
  CHECK_FALSE(Trainer::handles<etude::PreOptimizerStep>);
  CHECK_FALSE(Trainer::handles<etude::OptimizerStep>);
  CHECK_FALSE(Trainer::handles<etude::SchedulerStep>);
}

}  // namespace callbacks_norm_monitor_test
