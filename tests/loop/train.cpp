#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

#include "common/full_run.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/dispatch/filters.hpp"

namespace loop_train_test {

using etude::IntervalStrategy;

/// The training arguments of one update by plain SGD with a rate of 1, so that weights show gradients.
etude::TrainingArguments one_plain_step() {
  auto args = toy::arguments();
  args.optim = etude::OptimizerNames::sgd;
  args.learning_rate = 1;
  args.max_grad_norm = 0;
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  args.logging_strategy = IntervalStrategy::steps;
  args.logging_steps = 1;
  return args;
}

double logged(const etude::TrainerState& state, std::size_t line, const std::string& name) {
  return state.log_history.at(line).at(name).get<double>();
}

struct Result {
  torch::Tensor weight, bias;
  double loss, grad_norm;
};
Result after_one_step(std::int64_t examples, std::int64_t batch, std::int64_t group, etude::Loss loss) {
  auto args = one_plain_step();
  args.per_device_train_batch_size = batch;
  args.gradient_accumulation_steps = group;
  args.max_steps = 1;
  toy::Line model;
  auto options = toy::options(args, examples);
  options.model = model;
  options.loss = loss;
  etude::Trainer trainer(options);
  trainer.train();
  return {model->weight.detach(), model->bias.detach(), logged(trainer.state(), 0, "loss"),
          logged(trainer.state(), 0, "grad_norm")};
}

TEST_CASE(
    "a group of micro-batches equals one big batch in gradients, norm and logged loss, for random sizes") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 20; ++trial) {
    const std::int64_t batch = 1 + random() % 5, group = 1 + random() % 6;
    const auto big = after_one_step(batch * group, batch * group, 1, torch::nn::MSELoss());
    const auto accumulated = after_one_step(batch * group, batch, group, torch::nn::MSELoss());
    CAPTURE(batch);
    CAPTURE(group);
    CHECK(torch::allclose(big.weight, accumulated.weight, 1e-5, 1e-6));
    CHECK(torch::allclose(big.bias, accumulated.bias, 1e-5, 1e-6));
    CHECK(accumulated.loss == doctest::Approx(big.loss).epsilon(1e-5));
    CHECK(accumulated.grad_norm == doctest::Approx(big.grad_norm).epsilon(1e-5));
  }
}

TEST_CASE("a partial last group is divided by its real size") {
  // 3 batches in groups of 2: the second update uses only the last point. By hand, with points (0, 1),
  // (1/3, 5/3), (2/3, 7/3), w = b = 0 and a rate of 1: the first gradients are the means of -2 x y and -2 y.
  auto args = one_plain_step();
  args.gradient_accumulation_steps = 2;
  args.learning_rate = 0.5;
  toy::Line model;
  auto options = toy::options(args, 3);
  options.model = model;
  etude::Trainer trainer(options);
  trainer.train();
  double w = 0.5 * (2 * (1 / 3.) * (5 / 3.)) / 2, b = 0.5 * (2 * 1 + 2 * (5 / 3.)) / 2;
  const double residual = (2 / 3.) * w + b - 7 / 3.;
  CHECK(logged(trainer.state(), 0, "loss") == doctest::Approx((1 + 25 / 9.) / 2).epsilon(1e-5));
  CHECK(logged(trainer.state(), 1, "loss") == doctest::Approx(residual * residual).epsilon(1e-4));
  w -= 0.5 * 2 * (2 / 3.) * residual;
  b -= 0.5 * 2 * residual;
  CHECK(model->weight.item<double>() == doctest::Approx(w).epsilon(1e-5));
  CHECK(model->bias.item<double>() == doctest::Approx(b).epsilon(1e-5));
}

/// Labels of -100 don't count, so micro-batches have different numbers of items.
torch::Tensor masked_sum(torch::Tensor output, torch::Tensor target, double items) {
  const auto counted = target.ne(-100);
  return (output - target).square().masked_select(counted).sum() / items;
}

TEST_CASE("a loss that counts its items weights each item equally, however micro-batches divide them") {
  const auto x = torch::arange(6).to(torch::kFloat).reshape({6, 1}) / 6;
  auto y = (2 * x + 1).to(torch::kLong);
  y[1][0] = -100;
  y[2][0] = -100;
  const auto train = [&](std::int64_t batch, std::int64_t group) {
    auto args = one_plain_step();
    args.per_device_train_batch_size = batch;
    args.gradient_accumulation_steps = group;
    toy::Line model;
    auto options = toy::options(args);
    options.model = model;
    options.train_dataset = {x, y};
    options.loss = masked_sum;
    etude::Trainer trainer(options);
    trainer.train();
    return std::pair{model->bias.item<double>(), logged(trainer.state(), 0, "loss")};
  };
  const auto [whole_bias, whole_loss] = train(6, 1);
  // The targets that count are 1 for x = 0, and 2 for x = 3/6, 4/6 and 5/6. The bias gradient is -2 times
  // their mean.
  CHECK(whole_bias == doctest::Approx(2 * (1 + 2 + 2 + 2) / 4.));
  for (const auto& [batch, group] : {std::pair{2, 3}, {1, 6}, {3, 2}}) {
    const auto [bias, loss] = train(batch, group);
    CHECK(bias == doctest::Approx(whole_bias));
    CHECK(loss == doctest::Approx(whole_loss));
  }
}

TEST_CASE("a model that says what its loss is a mean over has each label weighted equally") {
  const auto rows = toy::rows_with_ignored_labels();
  const auto train = [&](etude::LossItems items, std::int64_t batch, std::int64_t group,
                         std::int64_t most = 6) {
    auto args = one_plain_step();
    args.per_device_train_batch_size = batch;
    args.gradient_accumulation_steps = group;
    args.auto_microbatching = most < batch;
    const toy::Rows model(items, most);
    auto options = toy::options(args);
    options.model = model;
    options.train_dataset = {std::get<0>(rows), std::get<1>(rows)};
    options.loss = {};
    options.eval_dataset = {};
    etude::Trainer trainer(options);
    trainer.train();
    return std::pair{model->weight.item<double>(), logged(trainer.state(), 0, "loss")};
  };
  for (const auto items : {etude::LossItems::labels, etude::LossItems::shifted_labels}) {
    const auto whole = train(items, 6, 1);
    const auto check = [&](const std::pair<double, double>& trained) {
      CHECK(trained.first == doctest::Approx(whole.first));
      CHECK(trained.second == doctest::Approx(whole.second));
    };
    for (const auto& [batch, group] : {std::pair{2, 3}, {1, 6}, {3, 2}}) check(train(items, batch, group));
    check(train(items, 6, 1, 2));  // in parts
  }
  CHECK(train(etude::LossItems::unknown, 2, 3).second !=
        doctest::Approx(train(etude::LossItems::unknown, 6, 1).second));
}

TEST_CASE("the loss of an evaluation without labels that count is no number, with accumulation too") {
  auto args = one_plain_step();
  args.gradient_accumulation_steps = 2;
  auto options = toy::options(args);
  options.model = toy::Rows(etude::LossItems::labels);
  options.loss = {};
  options.train_dataset = {torch::ones({4, 3}), torch::ones({4, 3}, torch::kLong)};
  options.eval_dataset = etude::Dataset(torch::ones({4, 3}), torch::full({4, 3}, -100));
  etude::Trainer trainer(options);
  trainer.train();
  CHECK(std::isnan(trainer.evaluate().at("eval_loss")));
}

TEST_CASE("gradients are clipped to max_grad_norm, and the logged norm is the one before clipping") {
  auto args = one_plain_step();
  args.max_grad_norm = 0.5;
  args.max_steps = 1;
  toy::Line model;
  auto options = toy::options(args, 2);
  options.train_dataset = {torch::ones({1, 1}), torch::full({1, 1}, 3.0)};
  options.model = model;
  etude::Trainer trainer(options);
  trainer.train();
  // Gradients (-6, -6): a norm of sqrt(72), and after clipping both are 0.5 / sqrt(2).
  CHECK(logged(trainer.state(), 0, "grad_norm") == doctest::Approx(std::sqrt(72.)));
  CHECK(model->weight.item<double>() == doctest::Approx(0.5 / std::sqrt(2.)).epsilon(1e-5));
}

TEST_CASE("gradients are clipped by value to max_grad_value; the logged norm is the one before clipping") {
  auto args = one_plain_step();
  args.max_grad_value = 0.25;
  args.max_steps = 1;
  toy::Line model;
  auto options = toy::options(args);
  options.train_dataset = {torch::full({1, 1}, 0.01), torch::full({1, 1}, 3.0)};
  options.model = model;
  etude::Trainer trainer(options);
  trainer.train();
  CHECK(logged(trainer.state(), 0, "grad_norm") == doctest::Approx(std::hypot(0.06, 6)));
  CHECK(model->weight.item<double>() == doctest::Approx(2 * 0.01 * 3));
  CHECK(model->bias.item<double>() == doctest::Approx(0.25));
}

/// A model whose loss is its only input.
struct EchoImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return x + 0 * weight; }
  torch::Tensor weight = register_parameter("weight", torch::zeros({1}));
};
TORCH_MODULE(Echo);

etude::TrainerOptions echo(etude::TrainingArguments args, std::vector<float> losses) {
  const auto n = static_cast<std::int64_t>(losses.size());
  return {.model = Echo(),
          .args = std::move(args),
          .loss = [](torch::Tensor output, torch::Tensor) { return output.mean(); },
          .train_dataset = {torch::tensor(losses).reshape({n, 1}), torch::zeros({n, 1})}};
}

TEST_CASE("a non-finite loss counts as the mean of those before it, and is counted") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(),
                  infinite = std::numeric_limits<float>::infinity();
  auto args = one_plain_step();
  args.logging_steps = 3;
  etude::Trainer trainer(echo(args, {2, nan, 1, infinite, 4, 2}));
  trainer.train();
  CHECK(logged(trainer.state(), 0, "loss") == doctest::Approx(5 / 3.));
  CHECK(logged(trainer.state(), 0, "non_finite_losses") == 1);
  CHECK(logged(trainer.state(), 1, "loss") ==
        doctest::Approx(3));  // the mean of 4 and 2: nothing came before
}

struct FailsAt {
  std::int64_t step = 0;
  void on(const etude::StepEnd& e) const {
    if (e.state.global_step == step) throw std::runtime_error("a fault");
  }
};

TEST_CASE(
    "the end reports how many losses weren't finite and the first one, filtered or not, resumed or not") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const bool filter : {true, false})
    for (const std::int64_t fault : {0, 3, 5}) {
      CAPTURE(filter);
      CAPTURE(fault);
      const toy::Folder folder;
      auto args = one_plain_step();
      args.logging_nan_inf_filter = filter;
      args.logging_steps = 2;
      args.log_level = etude::LogLevel::warning;
      toy::save_to(folder, args);
      const auto options = echo(args, {1, nan, 3, 4, nan, 6});
      etude::TrainOutput output;
      std::string text;
      if (fault > 0) {
        etude::Trainer<FailsAt> trainer(options, FailsAt{fault});
        text = toy::printed([&] { CHECK_THROWS(trainer.train()); }, STDERR_FILENO);
      }
      etude::Trainer<> trainer(options);
      text = toy::printed([&] { output = trainer.train({.resume_from_checkpoint = etude::if_any}); },
                          STDERR_FILENO);
      CHECK(text.find("warning: 2 of the losses weren't finite, since step 2: ") != std::string::npos);
      CHECK(output.metrics.at("non_finite_losses") == 2);
    }
}

TEST_CASE("the end names a parameter that has become NaN, and reports nothing for a healthy training") {
  auto args = one_plain_step();
  args.log_level = etude::LogLevel::warning;
  auto options = toy::options(args, 2);
  CHECK(toy::printed([&] { etude::Trainer<>(options).train(); }, STDERR_FILENO) == "");
  auto [x, y] = toy::points(2);
  y[0] = std::numeric_limits<float>::quiet_NaN();
  options.model = toy::Line();
  options.train_dataset = {x, y};
  CHECK(toy::printed([&] { etude::Trainer<>(options).train(); }, STDERR_FILENO)
            .find("2 of the losses weren't finite, since step 1, and weight now has such values, too") !=
        std::string::npos);
}

TEST_CASE("without logging_nan_inf_filter a NaN is logged") {
  auto args = one_plain_step();
  args.logging_nan_inf_filter = false;
  args.logging_steps = 2;
  etude::Trainer trainer(echo(args, {2, std::numeric_limits<float>::quiet_NaN()}));
  trainer.train();
  CHECK(std::isnan(logged(trainer.state(), 0, "loss")));
}

TEST_CASE("the logged learning rate is the one that the step used") {
  auto args = toy::arguments();
  args.learning_rate = 1;
  args.lr_scheduler_type = etude::SchedulerType::linear;
  args.logging_strategy = IntervalStrategy::steps;
  args.logging_steps = 1;
  etude::Trainer trainer(toy::options(args, 4));
  trainer.train();
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(logged(trainer.state(), i, "learning_rate") == doctest::Approx(1 - 0.25 * static_cast<double>(i)));
}

TEST_CASE("train() reports its counts, and its loss is the mean over its steps") {
  auto args = one_plain_step();
  args.logging_steps = 2;
  etude::Trainer trainer(echo(args, {1, 2, 3, 4, 5}));
  const auto output = trainer.train();
  CHECK(output.global_step == 5);
  CHECK(output.training_loss == doctest::Approx(3));
  CHECK(output.metrics.at("train_loss") == doctest::Approx(3));
  CHECK(output.metrics.contains("train_samples_per_second"));
  CHECK(output.stop_reason.empty());
  CHECK(trainer.state().epoch == 1);
  CHECK(trainer.state().max_steps == 5);
}

TEST_CASE("training doesn't change the user's arguments") {
  auto args = toy::arguments();
  args.eval_strategy = IntervalStrategy::steps;
  const auto before = args;
  const auto options = toy::options(args);
  etude::Trainer trainer(options);
  trainer.train();
  CHECK(options.args == before);
}

/// Sets a flag at one event.
template <class Event>
struct SetAt {
  bool etude::TrainerControl::*flag;
  int times = 1;
  void on(const Event& e) {
    if (times-- > 0) e.control.*flag = true;
  }
};

template <class Event>
std::string events_when(bool etude::TrainerControl::*flag, std::int64_t group = 1) {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.num_train_epochs = 2;
  args.gradient_accumulation_steps = group;
  etude::Trainer trainer(toy::options(args, 2 * group), SetAt<Event>{flag}, toy::Recorder{});
  trainer.train();
  return trainer.template callback<toy::Recorder>().events();
}

TEST_CASE("a request is honoured at the next possible point, wherever it is made") {
  using Control = etude::TrainerControl;
  // Other trainers lose these requests, because they reset the control at the beginning of each step.
  for (const auto& events : {events_when<etude::TrainBegin>(&Control::should_evaluate),
                             events_when<etude::EpochBegin>(&Control::should_evaluate),
                             events_when<etude::StepBegin>(&Control::should_evaluate),
                             events_when<etude::StepEnd>(&Control::should_evaluate)})
    CHECK(events == toy::run("InitEnd TrainBegin EpochBegin", toy::a_step, toy::an_evaluation, toy::a_step,
                             "EpochEnd EpochBegin", toy::a_step, toy::a_step, "EpochEnd Log TrainEnd"));
  CHECK(events_when<etude::TrainBegin>(&Control::should_log) ==
        toy::run("InitEnd TrainBegin EpochBegin", toy::a_step, "Log", toy::a_step, "EpochEnd EpochBegin",
                 toy::a_step, toy::a_step, "EpochEnd Log TrainEnd"));
  CHECK(events_when<etude::EpochEnd>(&Control::should_save) ==
        toy::run("InitEnd TrainBegin EpochBegin", toy::a_step, toy::a_step, "EpochEnd Save EpochBegin",
                 toy::a_step, toy::a_step, "EpochEnd Log TrainEnd"));
  CHECK(events_when<etude::TrainingRunEpochEnd>(&Control::should_save) ==
        toy::run("InitEnd TrainBegin EpochBegin", toy::a_step, toy::a_step, "EpochEnd EpochBegin",
                 toy::a_step, "Save", toy::a_step, "EpochEnd Log TrainEnd"));
  CHECK(events_when<etude::InitEnd>(&Control::should_save) ==
        toy::run("InitEnd TrainBegin EpochBegin", toy::a_step, "Save", toy::a_step, "EpochEnd EpochBegin",
                 toy::a_step, toy::a_step, "EpochEnd Log TrainEnd"));
}

TEST_CASE("a request at the very end is still honoured") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  etude::Trainer trainer(toy::options(args, 1),
                         SetAt<etude::TrainingRunEpochEnd>{&etude::TrainerControl::should_evaluate},
                         SetAt<etude::Evaluate>{&etude::TrainerControl::should_save}, toy::Recorder{});
  trainer.train();
  CHECK(trainer.callback<toy::Recorder>().events() == toy::run("InitEnd TrainBegin EpochBegin", toy::a_step,
                                                               "EpochEnd", toy::an_evaluation,
                                                               "Save Log TrainEnd"));
}

TEST_CASE("a stop that is requested before a step takes effect before the step") {
  using Control = etude::TrainerControl;
  CHECK(events_when<etude::InitEnd>(&Control::should_training_stop) == "InitEnd TrainBegin Log TrainEnd");
  CHECK(events_when<etude::DataLoaderCreated>(&Control::should_training_stop) ==
        "InitEnd TrainBegin Log TrainEnd");
  CHECK(events_when<etude::AccumulationPlanned>(&Control::should_training_stop) ==
        "InitEnd TrainBegin Log TrainEnd");
  CHECK(events_when<etude::TrainBegin>(&Control::should_training_stop) == "InitEnd TrainBegin Log TrainEnd");
  CHECK(events_when<etude::EpochBegin>(&Control::should_training_stop) ==
        "InitEnd TrainBegin EpochBegin EpochEnd Log TrainEnd");
  CHECK(events_when<etude::EpochBegin>(&Control::should_epoch_stop) ==
        toy::run("InitEnd TrainBegin EpochBegin EpochEnd EpochBegin", toy::a_step, toy::a_step,
                 "EpochEnd Log TrainEnd"));
  CHECK(events_when<etude::TrainBegin>(&Control::should_epoch_stop) ==
        toy::run("InitEnd TrainBegin EpochBegin EpochEnd EpochBegin", toy::a_step, toy::a_step,
                 "EpochEnd Log TrainEnd"));
}

TEST_CASE("a stop inside a step lets the micro-batch finish; an incomplete group is abandoned") {
  using Control = etude::TrainerControl;
  CHECK(events_when<etude::StepBegin>(&Control::should_training_stop) ==
        toy::run("InitEnd TrainBegin EpochBegin", toy::a_step, "EpochEnd Log TrainEnd"));
  CHECK(events_when<etude::PreOptimizerStep>(&Control::should_training_stop) ==
        toy::run("InitEnd TrainBegin EpochBegin", toy::a_step, "EpochEnd Log TrainEnd"));
  CHECK(events_when<etude::SubstepEnd>(&Control::should_training_stop, 2) ==
        "InitEnd TrainBegin EpochBegin StepBegin SubstepEnd EpochEnd Log TrainEnd");
  CHECK(events_when<etude::SubstepEnd>(&Control::should_epoch_stop, 2) ==
        toy::run("InitEnd TrainBegin EpochBegin StepBegin SubstepEnd EpochEnd EpochBegin", toy::a_step_of_two,
                 toy::a_step_of_two, "EpochEnd Log TrainEnd"));
}

TEST_CASE("an abandoned group leaves no gradients for the next") {
  auto args = one_plain_step();
  args.gradient_accumulation_steps = 2;
  args.num_train_epochs = 2;
  toy::Line model;
  auto options = toy::options(args, 2);
  options.model = model;
  etude::Trainer trainer(options, SetAt<etude::SubstepEnd>{&etude::TrainerControl::should_epoch_stop});
  trainer.train();
  const auto once = after_one_step(2, 1, 2, torch::nn::MSELoss());
  CHECK(trainer.state().log_history.at(0).at("loss").get<double>() == doctest::Approx(once.loss));
  CHECK(torch::allclose(model->weight, once.weight));
  CHECK(torch::allclose(model->bias, once.bias));
}

struct StopAfter {
  std::int64_t steps;
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == steps) e.control.request_stop("that is enough");
  }
};

TEST_CASE("a training that ends early has its last evaluation and checkpoint, and reports the reason") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 4;
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = 4;
  etude::Trainer trainer(toy::options(args, 9), StopAfter{3}, toy::Recorder{});
  const auto output = trainer.train();
  CHECK(output.global_step == 3);
  CHECK(output.stop_reason == "that is enough");
  CHECK(trainer.callback<toy::Recorder>().events() == toy::run("InitEnd TrainBegin EpochBegin", toy::a_step,
                                                               toy::a_step, toy::a_step, "EpochEnd",
                                                               toy::an_evaluation, "Save Log TrainEnd"));
  CHECK(trainer.callback<toy::Recorder>().count("Stop") == 1);
  CHECK(std::filesystem::exists(folder / "checkpoint-3"));
}

template <class Event>
struct Throws {
  void on(const Event&) { throw etude::StopTraining("enough"); }
};

template <class Event>
std::pair<std::string, std::string> stopped_in(std::int64_t group = 1) {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.gradient_accumulation_steps = group;
  args.eval_strategy = IntervalStrategy::epoch;
  args.save_strategy = etude::SaveStrategy::epoch;
  args.num_train_epochs = 2;
  etude::Trainer<Throws<Event>, toy::Recorder> trainer(toy::options(args, 2 * group));
  const auto output = trainer.train();
  return {trainer.template callback<toy::Recorder>().events(), output.stop_reason};
}

template <class Event>
struct AsksToStop {
  bool asks = true;
  void on(const Event& e) {
    if (!std::exchange(asks, false)) return;
    e.control.request_stop("no time");
    e.control.should_log = true;
  }
};

TEST_CASE_TEMPLATE("a stop that is requested before the training has its reason, and applies once", Event,
                   etude::InitEnd, etude::DataLoaderCreated, etude::AccumulationPlanned) {
  etude::Trainer<AsksToStop<Event>, toy::Recorder> trainer(toy::options(toy::arguments(), 4));
  const auto output = trainer.train();
  CHECK(output.stop_reason == "no time");
  CHECK(output.global_step == 0);
  CHECK(trainer.template callback<toy::Recorder>().count("Stop") == 1);
  CHECK(trainer.train().global_step == 4);
}

TEST_CASE_TEMPLATE("a resumed run honours requests made before its checkpoint is loaded", Event,
                   etude::InitEnd, etude::DataLoaderCreated, etude::AccumulationPlanned) {
  const toy::Folder folder;
  auto args = toy::arguments();
  toy::save_to(folder, args, 2);
  etude::Trainer<>(toy::options(args, 5)).train();
  etude::Trainer<AsksToStop<Event>> trainer(toy::options(args, 5));
  const auto output = trainer.train({.resume_from_checkpoint = folder / "checkpoint-2"});
  CHECK(output.global_step == 2);
  CHECK(output.stop_reason == "no time");
  CHECK(trainer.state().log_history.at(0).contains("loss"));
}

TEST_CASE("StopTraining ends the training properly from wherever it is thrown") {
  CHECK(stopped_in<etude::DataLoaderCreated>() ==
        std::pair<std::string, std::string>{"InitEnd TrainBegin Log TrainEnd", "enough"});
  CHECK(stopped_in<etude::AccumulationPlanned>() ==
        std::pair<std::string, std::string>{"InitEnd TrainBegin Log TrainEnd", "enough"});
  CHECK(stopped_in<etude::TrainBegin>() ==
        std::pair<std::string, std::string>{"InitEnd Log TrainEnd", "enough"});
  CHECK(stopped_in<etude::EpochBegin>().first ==
        toy::run("InitEnd TrainBegin EpochEnd", toy::an_evaluation, "Save Log TrainEnd"));
  CHECK(
      stopped_in<etude::ForwardBegin>().first ==
      toy::run("InitEnd TrainBegin EpochBegin StepBegin EpochEnd", toy::an_evaluation, "Save Log TrainEnd"));
  CHECK(
      stopped_in<etude::BackwardBegin>().first ==
      toy::run("InitEnd TrainBegin EpochBegin StepBegin EpochEnd", toy::an_evaluation, "Save Log TrainEnd"));
  CHECK(stopped_in<etude::SubstepEnd>(2).first == toy::run("InitEnd TrainBegin EpochBegin StepBegin EpochEnd",
                                                           toy::an_evaluation, "Save Log TrainEnd"));
  CHECK(stopped_in<etude::StepEnd>().first ==
        toy::run("InitEnd TrainBegin EpochBegin StepBegin PreOptimizerStep OptimizerStep EpochEnd",
                 toy::an_evaluation, "Save Log TrainEnd"));
  CHECK(stopped_in<etude::EpochEnd>().second == "enough");
  CHECK(stopped_in<etude::PredictionStep>().second == "enough");
  CHECK(stopped_in<etude::Evaluate>().second == "enough");
  CHECK(stopped_in<etude::Save>().second == "enough");
}

TEST_CASE("max_steps and num_train_epochs give the same plan as Hugging Face's Trainer") {
  etude::TrainingArguments args{.gradient_accumulation_steps = 4, .num_train_epochs = 2.5};
  auto plan = etude::plan_training(args, 10);  // 10 batches: 3 updates, the last of 2 batches
  CHECK(plan.updates_per_epoch == 3);
  CHECK(plan.max_steps == 8);
  CHECK(plan.num_train_epochs == 3);
  args.max_steps = 7;
  plan = etude::plan_training(args, 10);
  CHECK(plan.max_steps == 7);
  CHECK(plan.num_train_epochs == 3);
  plan = etude::plan_training(args, std::nullopt);
  CHECK(plan.max_steps == 7);
  CHECK(plan.batches_per_epoch == 28);
  args.max_steps = -1;
  CHECK_THROWS_AS(etude::plan_training(args, std::nullopt), etude::ArgumentError);
  args.num_train_epochs = 1e300;
  CHECK_THROWS_AS(etude::plan_training(args, 10), etude::ArgumentError);
}

TEST_CASE("a second train() continues with the weights and a new state") {
  auto args = one_plain_step();
  args.learning_rate = 0.1;
  etude::Trainer trainer(toy::options(args, 2));
  trainer.train();
  const auto weight = trainer.model().as<toy::LineImpl>().weight.detach().clone();
  const auto output = trainer.train();
  CHECK(output.global_step == 2);
  CHECK_FALSE(torch::equal(weight, trainer.model().as<toy::LineImpl>().weight));
  CHECK(trainer.state().log_history.size() == 3);
}

TEST_CASE("model_init makes all trainings the same") {
  auto options = toy::options(toy::arguments(), 4);
  options.model = {};
  options.model_init = [] { return torch::nn::Linear(1, 1); };
  etude::Trainer trainer(options);
  trainer.train();
  const auto first = trainer.model().parameters()[0].detach().clone();
  trainer.train();
  CHECK(torch::equal(first, trainer.model().parameters()[0]));
}

TEST_CASE("two trainings with one seed are equal to the bit, and with another they are not") {
  const auto train = [](std::int64_t seed) {
    auto args = toy::arguments();
    args.seed = seed;
    args.per_device_train_batch_size = 4;
    auto options = toy::options(args, 16);
    options.model = {};
    options.model_init = [] {
      return torch::nn::Sequential(torch::nn::Linear(1, 8), torch::nn::Dropout(0.5), torch::nn::Linear(8, 1));
    };
    etude::Trainer trainer(options);
    trainer.train();
    return torch::nn::utils::parameters_to_vector(trainer.model().parameters()).detach();
  };
  CHECK(torch::equal(train(1), train(1)));
  CHECK_FALSE(torch::equal(train(1), train(2)));
}

TEST_CASE("evaluation does not disturb the random numbers of training") {
  const auto train = [](IntervalStrategy strategy) {
    auto args = toy::arguments();
    args.eval_strategy = strategy;
    args.eval_steps = 1;
    auto options = toy::options(args, 8, 4);
    options.model = {};
    options.model_init = [] {
      return torch::nn::Sequential(torch::nn::Linear(1, 8), torch::nn::Dropout(0.5), torch::nn::Linear(8, 1));
    };
    options.compute_metrics = [](const etude::EvalPrediction&) {
      return etude::Metrics{{"noise", torch::rand({1}).item<double>()}};
    };
    etude::Trainer trainer(options);
    trainer.train();
    return torch::nn::utils::parameters_to_vector(trainer.model().parameters()).detach();
  };
  CHECK(torch::equal(train(IntervalStrategy::no), train(IntervalStrategy::steps)));
}

TEST_CASE("LBFGS evaluates the loss of a group several times") {
  auto args = one_plain_step();
  args.optim = etude::OptimizerNames::lbfgs;
  args.per_device_train_batch_size = 4;
  args.gradient_accumulation_steps = 2;
  args.num_train_epochs = 5;
  toy::Line model;
  auto options = toy::options(args, 8);
  options.model = model;
  etude::Trainer(options).train();
  CHECK(model->weight.item<double>() == doctest::Approx(2).epsilon(1e-2));
  CHECK(model->bias.item<double>() == doctest::Approx(1).epsilon(1e-2));
}

TEST_CASE("the user's own optimizer and schedule are used unchanged") {
  toy::Line model;
  auto args = one_plain_step();
  auto options = toy::options(args, 2);
  options.model = model;
  options.optimizer = std::make_shared<torch::optim::SGD>(std::vector<torch::Tensor>{model->bias}, 0.25);
  options.lr_scheduler = [](std::int64_t step) { return step == 0 ? 1.0 : 0.0; };
  etude::Trainer trainer(options);
  trainer.train();
  CHECK(model->bias.item<double>() == doctest::Approx(0.25 * 2 * 1));  // the first point is (0, 1)
  CHECK(model->weight.item<double>() == 0);
  CHECK(logged(trainer.state(), 0, "learning_rate") == 0.25);
  CHECK(logged(trainer.state(), 1, "learning_rate") == 0);
}

TEST_CASE("an invalid learning rate ends the training before the weights are touched") {
  const auto fault = [](std::int64_t step, double rate, auto set_rate) {
    toy::Line model;
    auto options = toy::options(toy::arguments(), 6);
    options.model = model;
    etude::Trainer trainer(options, etude::on<etude::StepEnd>().call([=](const etude::StepEnd& e) {
      if (e.state.global_step + 1 == step) set_rate(e.optimizer->param_groups()[0].lr);
    }));
    CHECK_THROWS_WITH_AS(
        trainer.train(),
        fmt::format("the learning rate of parameter group 0 is {} for step {}: must be at least 0 and "
                    "finite; the lr_scheduler gives it, or a callback has set it",
                    rate, step)
            .c_str(),
        etude::ArgumentError);
    CHECK(trainer.state().global_step == step - 1);
    CHECK(torch::isfinite(model->weight).item<bool>());
  };
  fault(3, -0.5, [](double& rate) { rate = -0.5; });
  fault(4, INFINITY, [](double& rate) { rate = INFINITY; });
  fault(2, std::numeric_limits<double>::quiet_NaN(),
        [](double& rate) { rate = -std::numeric_limits<double>::quiet_NaN(); });

  auto options = toy::options(toy::arguments(), 6);
  options.lr_scheduler = [](std::int64_t step) { return 1.0 / static_cast<double>(step); };
  etude::Trainer trainer(options);
  CHECK_THROWS_AS(trainer.train(), etude::ArgumentError);
  CHECK(trainer.state().global_step == 0);
}

TEST_CASE("reduce_lr_on_plateau follows the evaluations") {
  auto args = toy::arguments();
  args.num_train_epochs = 4;
  args.learning_rate = 1;
  args.eval_strategy = IntervalStrategy::epoch;
  args.lr_scheduler_type = etude::SchedulerType::reduce_lr_on_plateau;
  args.lr_scheduler_kwargs = {{"factor", 0.1}, {"patience", 0}};
  args.metric_for_best_model = "score";
  args.greater_is_better = false;
  auto options = toy::options(args, 1);
  options.compute_metrics = [](const etude::EvalPrediction&) { return etude::Metrics{{"score", 1.0}}; };
  etude::Trainer trainer(options);
  trainer.train();
  CHECK(trainer.get_learning_rates()[0] == doctest::Approx(1e-3));  // one good evaluation, three bad ones
}

/// Waves with a little noise on each, which is drawn where the example is fetched.
struct NoisyWaves {
  int size() const { return 60; }
  std::pair<torch::Tensor, torch::Tensor> get(int i) const {
    const auto x = torch::sin(torch::arange(3).to(torch::kFloat) + i);
    return {x + 0.1 * torch::randn({3}, etude::data_generator()), x.sum(0, true)};
  }
};

TEST_CASE("a training ends with the same float32 weights to the bit with 0, 1 and 4 workers") {
  std::string expected;
  for (const int workers : {0, 1, 4}) {
    CAPTURE(workers);
    auto args = toy::arguments();
    args.per_device_train_batch_size = 8;
    args.num_train_epochs = 3;
    args.dataloader_num_workers = workers;
    etude::Trainer<etude::NoDefaultCallbacks> trainer({.model = std::make_shared<toy::DroppingNet>(),
                                                       .args = args,
                                                       .loss = torch::nn::MSELoss(),
                                                       .train_dataset = NoisyWaves()});
    trainer.train();
    if (workers == 0) expected = toy::weights(trainer);
    CHECK(toy::weights(trainer) == expected);
  }
}

}  // namespace loop_train_test
