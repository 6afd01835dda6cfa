#include "etude/callbacks/stochastic_weight_averaging.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <random>

#include "common/fault_of.hpp"
#include "common/full_run.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/early_stopping.hpp"

namespace callbacks_stochastic_weight_averaging_test {

using SWA = etude::StochasticWeightAveragingCallback;

struct Witness {
  std::vector<double> biases = {};  // after each epoch
  std::vector<double> rates = {};   // of the first step of each epoch
  void on(const etude::EpochEnd& e) { biases.push_back(e.model.as<toy::LineImpl>().bias.item<double>()); }
  void on(const etude::PreOptimizerStep& e) {
    if (e.state.epoch == std::floor(e.state.epoch)) rates.push_back(e.optimizer->param_groups()[0].lr);
  }
};
using Trainer = etude::Trainer<SWA, Witness>;

etude::TrainingArguments arguments(double epochs) {
  auto args = toy::arguments();
  args.num_train_epochs = epochs;
  return args;
}

double bias(Trainer& trainer) { return trainer.model().as<toy::LineImpl>().bias.item<double>(); }

TEST_CASE("a training ends with the mean of the weights at the ends of its last epochs") {
  const auto first_of_five = [](double swa_epoch_start) {
    Trainer trainer(toy::options(arguments(5), 3), SWA{.swa_epoch_start = swa_epoch_start});
    trainer.train();
    const auto& biases = trainer.callback<Witness>().biases;
    REQUIRE(biases.size() == 5);
    for (std::size_t first = 0; first < 5; ++first) {
      const double mean =
          std::accumulate(biases.begin() + std::ptrdiff_t(first), biases.end(), 0.) / double(5 - first);
      if (std::abs(mean - bias(trainer)) < 1e-6 &&
          trainer.callback<SWA>().state.n_averaged == std::int64_t(5 - first))
        return first + 1;
    }
    return std::size_t{0};
  };
  // As in Lightning: an epoch counted from 1, or a fraction, such as .8 for the fourth of five.
  CHECK(first_of_five(3) == 3);
  CHECK(first_of_five(1) == 1);
  CHECK(first_of_five(.8) == 4);
  CHECK(first_of_five(0) == 1);
}

TEST_CASE("the learning rates go to swa_lr in these epochs, and stay there") {
  const auto rates = [](SWA callback) {
    Trainer trainer(toy::options(arguments(6), 2), callback);
    trainer.train();
    return trainer.callback<Witness>().rates;
  };
  // SWALR of torch: swa_lr * a + lr * (1 - a), a = t or (1 - cos(pi t)) / 2, t = 0, 1/3, 2/3, 1, ...
  const auto linear = rates({.swa_epoch_start = 2,
                             .swa_lr = .01,
                             .annealing_epochs = 3,
                             .annealing_strategy = etude::AnnealingStrategy::linear});
  const auto cosine = rates({.swa_epoch_start = 2, .swa_lr = .01, .annealing_epochs = 3});
  const auto at_once = rates({.swa_epoch_start = 3, .swa_lr = .01, .annealing_epochs = 0});
  const auto close = [](const std::vector<double>& found, const std::vector<double>& expected) {
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]));
  };
  close(linear, {.1, .1, .07, .04, .01, .01});
  close(cosine, {.1, .1, .0775, .0325, .01, .01});
  close(at_once, {.1, .1, .01, .01, .01, .01});
}

TEST_CASE("swa_lr replaces any schedule, within each epoch too") {
  auto args = arguments(4);
  args.lr_scheduler_type = etude::SchedulerType::linear;
  struct Each {
    std::vector<double> rates = {};
    void on(const etude::PreOptimizerStep& e) { rates.push_back(e.optimizer->param_groups()[0].lr); }
  };
  etude::Trainer<SWA, Each> trainer(toy::options(args, 2),
                                    SWA{.swa_epoch_start = 3, .swa_lr = .02, .annealing_epochs = 0});
  trainer.train();
  const auto& rates = trainer.callback<Each>().rates;
  REQUIRE(rates.size() == 8);
  CHECK(rates[3] == doctest::Approx(.1 * 5 / 8));
  for (std::size_t i = 4; i < 8; ++i) CHECK(rates[i] == .02);
}

TEST_CASE("BatchNorm has the statistics of the averaged weights, as cumulative means of the batches") {
  std::mt19937 engine;
  const toy::Folder folder;
  auto options = toy::full_options(folder, engine);
  options.args.num_train_epochs = 3;
  options.args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  const auto x = torch::sin(torch::arange(46 * 3).to(torch::kFloat)).reshape({46, 3});
  etude::Trainer<toy::Quiet, SWA> trainer(options, SWA{.swa_epoch_start = 2});
  trainer.train();
  auto& net = trainer.model().as<toy::DroppingNet>();
  auto mean = torch::zeros({6}, torch::kDouble), variance = torch::zeros({6}, torch::kDouble);
  for (std::int64_t batch = 0; batch < 23; ++batch) {
    const auto hidden = net.first(x.narrow(0, 2 * batch, 2)).detach().to(torch::kDouble);
    mean += hidden.mean(0) / 23;
    variance += hidden.var(0, /*unbiased=*/true) / 23;
  }
  CHECK(torch::allclose(net.norm->running_mean.to(torch::kDouble), mean, 1e-4, 1e-5));
  CHECK(torch::allclose(net.norm->running_var.to(torch::kDouble), variance, 1e-4, 1e-5));
  CHECK(net.norm->num_batches_tracked.item<std::int64_t>() == 23);
  CHECK(net.norm->options.momentum().value() == .1);
}

using FullTrainer = etude::Trainer<toy::Quiet, toy::Diary, etude::EarlyStoppingCallback, SWA>;

TEST_CASE("a resumed run ends with the same average, to the bit") {
  for (const bool async : {false, true}) {
    const toy::Folder folder;
    std::mt19937 engine;
    auto options = toy::full_options(folder, engine);
    options.args.save_async = async;
    const auto make = [&] {
      options.model = std::make_shared<toy::DroppingNet>();
      return std::make_unique<FullTrainer>(options, toy::Diary{.engine = &engine},
                                           etude::EarlyStoppingCallback{.early_stopping_patience = 99},
                                           SWA{.swa_epoch_start = 1, .swa_lr = .01, .annealing_epochs = 1});
    };
    const auto whole = make();
    whole->train();
    for (const int step : {3, 6, 8}) {
      const auto resumed = make();
      resumed->train({.resume_from_checkpoint = folder / fmt::format("checkpoint-{}", step)});
      CAPTURE(step);
      CHECK(toy::weights(*resumed) == toy::weights(*whole));
      CHECK(resumed->callback<SWA>().state.n_averaged == 2);
    }
  }
}

TEST_CASE("an incomplete epoch doesn't count, and without any epoch the weights are unchanged") {
  struct Stopper {
    std::int64_t at = 0;
    void on(const etude::StepEnd& e) {
      if (e.state.global_step == at) e.control.request_stop("enough");
    }
  };
  for (const std::int64_t at : {5, 7}) {
    etude::Trainer<SWA, Witness, Stopper> trainer(toy::options(arguments(4), 3), SWA{.swa_epoch_start = 2},
                                                  Stopper{at});
    trainer.train();
    const auto& biases = trainer.callback<Witness>().biases;
    const double now = trainer.model().as<toy::LineImpl>().bias.item<double>();
    CHECK(trainer.callback<SWA>().state.n_averaged == (at == 5 ? 0 : 1));
    CHECK(now == (at == 5 ? biases.back() : biases[1]));
  }
}

TEST_CASE("an epoch that should_epoch_stop ends counts like any other") {
  struct Cutter {
    void on(const etude::StepEnd& e) {
      if (e.state.global_step % 2 == 0) e.control.should_epoch_stop = true;
    }
  };
  etude::Trainer<SWA, Witness, Cutter> trainer(toy::options(arguments(4), 3), SWA{.swa_epoch_start = 3});
  trainer.train();
  const auto& biases = trainer.callback<Witness>().biases;
  REQUIRE(biases.size() == 4);
  CHECK(trainer.callback<SWA>().state.n_averaged == 2);
  CHECK(trainer.model().as<toy::LineImpl>().bias.item<double>() ==
        doctest::Approx((biases[2] + biases[3]) / 2));
}

TEST_CASE("after an error the model stays as it was") {
  struct Thrower {
    void on(const etude::StepEnd& e) {
      if (e.state.global_step == 8) throw std::runtime_error("broken");
    }
  };
  etude::Trainer<SWA, Witness, Thrower> trainer(toy::options(arguments(4), 3), SWA{.swa_epoch_start = 1});
  CHECK_THROWS_WITH(trainer.train(), "broken");
  CHECK(trainer.model().as<toy::LineImpl>().bias.item<double>() == trainer.callback<Witness>().biases.back());
}

TEST_CASE("unsupported options and inputs are refused by name") {
  const auto refusal = [](SWA callback) -> std::string {
    Trainer trainer(toy::options(arguments(4)), callback);
    return toy::fault_of<etude::ArgumentError>([&] { trainer.train(); });
  };
  const std::string start = ": must be an epoch, counted from 1, or from 0 to 1 a share of all";
  CHECK(refusal({.swa_epoch_start = 2.5}) == "swa_epoch_start is 2.5" + start);
  CHECK(refusal({.swa_epoch_start = -1}) == "swa_epoch_start is -1" + start);
  CHECK(refusal({.swa_epoch_start = 6}) == "swa_epoch_start is 6: there are 4 epochs, and no average");
  CHECK(refusal({.swa_epoch_start = 1e300}) ==
        "swa_epoch_start is 1e+300: there are 4 epochs, and no average");
  CHECK(refusal({.swa_lr = 0}) == "swa_lr is 0: must be above 0 and finite, or unset");
  CHECK(refusal({.annealing_epochs = -1}) == "annealing_epochs is -1: must be at least 0");
}

}  // namespace callbacks_stochastic_weight_averaging_test
