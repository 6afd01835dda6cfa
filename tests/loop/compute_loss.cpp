#include "etude/loop/compute_loss.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/ranks.hpp"
#include "common/toy.hpp"

namespace compute_loss_test {

using Values = std::vector<double>;

/// y = w x, and the mean of x: an output without dimensions.
struct WithMeanImpl : torch::nn::Module {
  etude::Tensors forward(torch::Tensor x) { return {{"y", x * weight}, {"mean_x", x.mean()}}; }
  torch::Tensor weight = register_parameter("weight", torch::zeros({1}));
};
TORCH_MODULE(WithMean);

etude::TrainingArguments arguments(std::int64_t batch_size, std::int64_t accumulation = 1) {
  auto args = toy::arguments();
  args.per_device_train_batch_size = batch_size;
  args.per_device_eval_batch_size = batch_size;
  args.gradient_accumulation_steps = accumulation;
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 2;
  args.learning_rate = 0;
  return args;
}

/// Numbers [n, 1]: 0, 1, 2, ..., with themselves as labels.
etude::Dataset numbers(std::int64_t n) {
  const auto x = torch::arange(n).to(torch::kFloat).reshape({n, 1});
  return {x, x};
}

etude::TrainerOptions options(const etude::TrainingArguments& args, std::int64_t n) {
  return {.model = WithMean(),
          .args = args,
          .compute_loss = [](etude::Model& model, const etude::Batch& batch,
                             std::optional<double>) -> etude::LossOutput {
            auto outputs = model.forward(batch);
            const auto loss = (outputs["y"] - batch.labels).square().mean();
            return {.loss = loss, .outputs = outputs, .logs = {{"largest", batch.inputs[0].max()}}};
          },
          .train_dataset = numbers(n),
          .eval_dataset = numbers(n)};
}

Values logged(const etude::TrainerState& state, const std::string& name) {
  Values values;
  for (const auto& line : state.log_history)
    if (line.contains(name)) values.push_back(line.at(name));
  return values;
}

template <class... List>
struct LogsIn final : etude::TrainerBase<LogsIn<List...>, etude::Without<etude::PrinterCallback>, List...> {
  using Base = etude::TrainerBase<LogsIn<List...>, etude::Without<etude::PrinterCallback>, List...>;
  using Base::Base;
  etude::LossOutput compute_loss(const etude::Batch& batch, std::optional<double> num_items) {
    auto computed = Base::compute_loss(batch, num_items);
    this->log("smallest", batch.inputs[0].min());
    this->log("mean", batch.inputs[0].mean());
    return computed;
  }
};
using Logs = LogsIn<>;

TEST_CASE("parts of a loss are averaged over the updates of a log, as the loss is") {
  // Updates of {0, 1} and {2, 3}, then {4, 5} and {6, 7}.
  Logs trainer(options(arguments(2), 8));
  trainer.train();
  CHECK(logged(trainer.state(), "largest") == Values{2, 6});
  CHECK(logged(trainer.state(), "mean") == Values{1.5, 5.5});
  CHECK(logged(trainer.state(), "smallest") == Values{1, 5});
}

TEST_CASE("the micro-batches of a group count as their shares of its loss") {
  // Groups of {0}, {1} and {2}, {3}: the loss of each example is its square.
  Logs trainer(options(arguments(1, 2), 4));
  trainer.train();
  CHECK(logged(trainer.state(), "smallest") == Values{1.5});
  CHECK(logged(trainer.state(), "loss") == Values{(0. + 1 + 4 + 9) / 4});
}

TEST_CASE("parts of a loss that counts items add up within a group") {
  auto given = options(arguments(1, 2), 4);
  given.args.logging_steps = 1;
  given.compute_loss = [](etude::Model& model, const etude::Batch& batch,
                          std::optional<double> items) -> etude::LossOutput {
    const auto loss = (model.forward(batch)["y"] - batch.labels).square().sum() / *items;
    return {.loss = loss, .outputs = {}, .counts_items = true, .logs = {{"again", loss}}};
  };
  Logs trainer(given);
  trainer.train();
  CHECK(logged(trainer.state(), "again") == Values{0.5, 6.5});
  CHECK(logged(trainer.state(), "again") == logged(trainer.state(), "loss"));
}

TEST_CASE("with LBFGS, the parts of a loss are those of a step's first evaluation, as the loss is") {
  auto args = toy::arguments();
  args.optim = etude::OptimizerNames::lbfgs;
  args.max_steps = 1;
  auto options = toy::options(args, 8, 8);
  options.loss = {};
  options.compute_loss = [](etude::Model& model, const etude::Batch& batch, std::optional<double>) {
    const auto output = model.forward(batch)[0];
    const auto loss = torch::mse_loss(output, batch.labels[0]);
    return etude::LossOutput{.loss = loss, .outputs = output, .logs = {{"part", loss / 2}}};
  };
  etude::Trainer trainer(options);
  const auto metrics = trainer.train().metrics;
  CHECK(metrics.at("part") == doctest::Approx(metrics.at("train_loss") / 2));
}

TEST_CASE("an evaluation has the parts of its loss, weighted by examples, under its prefix") {
  // Batches of {0, 1} and {2}.
  Logs trainer(options(arguments(2), 3));
  const auto metrics = trainer.evaluate();
  CHECK(metrics.at("eval_largest") == doctest::Approx((2 * 1 + 2) / 3.0));
  CHECK(metrics.at("eval_mean") == doctest::Approx(1));
  CHECK(metrics.at("eval_smallest") == doctest::Approx(2 / 3.0));
  CHECK(trainer.evaluate({.metric_key_prefix = "test"}).contains("test_largest"));
}

TEST_CASE("an output without dimensions is a prediction with one value for each batch, and no metric") {
  Logs trainer(options(arguments(2), 3));
  trainer.train();
  CHECK(logged(trainer.state(), "mean_x").empty());
  CHECK_FALSE(trainer.evaluate().contains("eval_mean_x"));
  // Batches of {0, 1} and {2}.
  const auto prediction = trainer.predict(numbers(3));
  CHECK(prediction.predictions.names() == std::vector<std::string>{"y", "mean_x"});
  CHECK(prediction.predictions["y"].size(0) == 3);
  CHECK(torch::equal(prediction.predictions["mean_x"], torch::tensor({0.5f, 2.f})));
  CHECK_FALSE(prediction.metrics.contains("test_mean_x"));
}

TEST_CASE(
    "in two processes, an output without dimensions has a value for each part of a batch that has examples") {
  if (toy::launches(2)) return;
  LogsIn<etude::DistributedDataParallel> together(options(arguments(1, 2), 8));
  const auto means = [&](std::int64_t n) { return together.predict(numbers(n)).predictions["mean_x"]; };
  // Batches of {0, 1}, {2, 3}, and {4}, which only one process has.
  CHECK(torch::equal(means(5), torch::tensor({0.f, 1.f, 2.f, 3.f, 4.f})));
}

TEST_CASE("log takes numbers, in a loss and elsewhere") {
  struct Counting final : etude::TrainerBase<Counting, etude::Without<etude::PrinterCallback>> {
    using TrainerBase::TrainerBase;
    etude::LossOutput compute_loss(const etude::Batch& batch, std::optional<double> num_items) {
      log("rows", static_cast<double>(batch.size));
      return TrainerBase::compute_loss(batch, num_items);
    }
    torch::Tensor training_step(etude::Batch& batch) {
      log("steps", 1);
      return TrainerBase::training_step(batch);
    }
  };
  auto given = options(arguments(2), 3);
  given.args.logging_steps = 1;
  Counting trainer(given);
  trainer.train();
  CHECK(logged(trainer.state(), "rows") == Values{2, 1});
  CHECK(logged(trainer.state(), "steps") == Values{1, 1});
  CHECK(trainer.evaluate().at("eval_rows") == doctest::Approx((2 * 2 + 1) / 3.0));
}

/// Two layers that only a loss knows how to use.
struct PartsImpl : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(1, 1))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(1, 1))};
};
TORCH_MODULE(Parts);

etude::LossOutput loss_of_parts(etude::Model& model, const etude::Batch& batch, std::optional<double>) {
  auto& parts = model.as<Parts>();
  const auto output = parts.first(batch.inputs[0]) + parts.second(batch.inputs[0]);
  return {.loss = torch::mse_loss(output, batch.labels[0]), .outputs = output};
}

TEST_CASE("a model without forward trains, evaluates and predicts with a compute_loss that needs none") {
  auto given = options(arguments(2), 8);
  given.model = {};
  given.model_init = [] { return Parts(); };
  given.args.learning_rate = 0.1;
  given.compute_loss = loss_of_parts;
  etude::Trainer<etude::Without<etude::PrinterCallback>> trainer(given);
  const auto before = trainer.evaluate().at("eval_loss");
  trainer.train();
  CHECK(trainer.evaluate().at("eval_loss") < before);
  CHECK(trainer.predict(numbers(3)).predictions[0].size(0) == 3);
  // Without labels there is no loss to compute, so only forward could give outputs.
  CHECK_THROWS_WITH_AS(trainer.predict(torch::ones({3, 1})), doctest::Contains("PartsImpl has no forward"),
                       etude::ArgumentError);
}

TEST_CASE("a trainer's own compute_loss or training_step needs no forward either") {
  struct Own final : etude::TrainerBase<Own, etude::Without<etude::PrinterCallback>> {
    using TrainerBase::TrainerBase;
    etude::LossOutput compute_loss(const etude::Batch& batch, std::optional<double> num_items) {
      return loss_of_parts(model(), batch, num_items);
    }
  };
  struct ByStep final : etude::TrainerBase<ByStep, etude::Without<etude::PrinterCallback>> {
    using TrainerBase::TrainerBase;
    torch::Tensor training_step(etude::Batch& batch) {
      const auto loss = loss_of_parts(model(), batch, {}).loss;
      backward(loss);
      return loss;
    }
  };
  auto given = options(arguments(2), 4);
  given.model = Parts();
  given.compute_loss = {};
  CHECK(Own(given).train().global_step == 2);
  CHECK(ByStep(given).train().global_step == 2);
}

TEST_CASE("without a compute_loss, a model without forward is refused when the trainer is made") {
  auto given = options(arguments(2), 4);
  given.model = Parts();
  given.compute_loss = {};
  const auto make = [](const etude::TrainerOptions& of) { etude::Trainer<> trainer(of); };
  CHECK_THROWS_WITH_AS(make(given),
                       doctest::Contains("PartsImpl has no forward: it must have one, or compute_loss"),
                       etude::ArgumentError);
  given.loss = torch::nn::MSELoss();
  CHECK_THROWS_AS(make(given), etude::ArgumentError);
  given.loss = {};
  given.optimizers = {{"first", {.compute_loss = loss_of_parts}},
                      {"second", {.compute_loss = loss_of_parts}}};
  CHECK_NOTHROW(make(given));
}

TEST_CASE("several values of one name in a loss are averaged") {
  auto given = options(arguments(2), 2);
  given.args.logging_steps = 1;
  given.compute_loss = [](etude::Model& model, const etude::Batch& batch,
                          std::optional<double>) -> etude::LossOutput {
    return {.loss = model.forward(batch)["y"].square().mean(),
            .outputs = {},
            .logs = {{torch::tensor(1.0), torch::tensor(4.0)}, {"part", "part"}}};
  };
  Logs trainer(given);
  trainer.train();
  CHECK(logged(trainer.state(), "part") == Values{2.5});
}

TEST_CASE("a part that isn't one element is an error that names it") {
  auto given = options(arguments(2), 2);
  given.compute_loss = [](etude::Model& model, const etude::Batch& batch,
                          std::optional<double>) -> etude::LossOutput {
    return {.loss = model.forward(batch)["y"].square().mean(),
            .outputs = {},
            .logs = {{"part", batch.inputs[0]}}};
  };
  Logs trainer(given);
  CHECK_THROWS_WITH_AS(trainer.train(), doctest::Contains("'part', a part of the loss, is float32 [2, 1]"),
                       etude::DataError);
}

TEST_CASE("a metric for the best model may be a part of the loss") {
  auto args = arguments(2);
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.metric_for_best_model = "smallest";
  Logs trainer(options(args, 4));
  trainer.train();
  CHECK(trainer.state().best_metric == doctest::Approx(1));
}

TEST_CASE("in two processes, parts of a loss are those of one process with batches twice as large") {
  if (toy::launches(2)) return;
  LogsIn<etude::DistributedDataParallel> together(options(arguments(1, 2), 8));
  together.train();
  const auto metrics = together.evaluate();
  const toy::Alone alone;
  Logs one(options(arguments(2, 2), 8));
  one.train();
  CHECK(logged(together.state(), "mean") == logged(one.state(), "mean"));
  CHECK(logged(together.state(), "loss") == logged(one.state(), "loss"));
  CHECK(metrics.at("eval_mean") == one.evaluate().at("eval_mean"));
}

/// The square of the distance, whose mean over 0, 1, 2, 3 is 3.5 for a weight of 0.
torch::Tensor square_of(WithMeanImpl& model, const etude::Batch& batch) {
  return (model.forward(batch.inputs[0])["y"] - batch.labels).square().mean();
}
torch::Tensor plain_function(WithMeanImpl& model, const etude::Batch& batch) {
  return square_of(model, batch);
}

/// The logs of a training of two steps whose loss is computed by `compute`.
etude::LogEntry log_with(etude::ComputeLossOption compute) {
  auto given = options(arguments(2), 4);
  given.compute_loss = std::move(compute);
  etude::Trainer<> trainer(given);
  trainer.train();
  return trainer.state().log_history.at(0);
}

TEST_CASE(
    "compute_loss is a function as one would write it: of the model or its module, with a loss or parts") {
  using etude::Batch;
  const std::vector<etude::ComputeLossOption> forms{
      [](etude::Model& model, const Batch& batch) { return square_of(model.as<WithMean>(), batch); },
      [](etude::Model& model, const Batch& batch, std::optional<double> items) {
        CHECK(items == 2);
        return square_of(model.as<WithMean>(), batch);
      },
      [](WithMeanImpl& model, const Batch& batch) { return square_of(model, batch); },
      [](WithMean model, const Batch& batch) -> etude::LossOutput {
        return {.loss = square_of(*model, batch), .outputs = {}};
      },
      [](WithMean& model, const Batch& batch, std::optional<double>) { return square_of(*model, batch); },
      [](auto& model, const auto& batch) { return square_of(model.template as<WithMean>(), batch); },
      plain_function,
  };
  for (const auto& form : forms) CHECK(log_with(form).at("loss") == 3.5);
  auto given = options(arguments(2), 4);
  WithMean captured;
  given.model = captured;
  given.compute_loss = [captured](const Batch& batch) mutable { return square_of(*captured, batch); };
  etude::Trainer<> trainer(given);
  trainer.train();
  CHECK(trainer.state().log_history.at(0).at("loss") == 3.5);
}

TEST_CASE("a loss of named parts is their sum, and each part is logged") {
  const auto parts = log_with([](WithMeanImpl& model, const etude::Batch& batch) {
    const auto square = square_of(model, batch);
    return std::map<std::string, torch::Tensor>{{"near", square}, {"far", 2 * square}};
  });
  CHECK(parts.at("loss") == 10.5);
  CHECK(parts.at("near") == 3.5);
  CHECK(parts.at("far") == 7);
  CHECK_THROWS_WITH_AS(log_with([](etude::Model&, const etude::Batch&) {
                         return std::vector<std::pair<std::string, torch::Tensor>>();
                       }),
                       "compute_loss returned no parts of a loss: must be at least one", etude::DataError);
}

TEST_CASE("a compute_loss for another module says which the model is") {
  CHECK_THROWS_WITH_AS(log_with([](toy::Line, const etude::Batch&) { return torch::Tensor(); }),
                       doctest::Contains("WithMean"), etude::ArgumentError);
}

TEST_CASE("an empty function is no compute_loss") {
  torch::Tensor (*none)(etude::Model&, const etude::Batch&) = nullptr;
  CHECK_FALSE(etude::ComputeLossOption(none));
  CHECK_FALSE(etude::ComputeLossOption(std::function<etude::ComputeLoss>()));
  CHECK_FALSE(etude::ComputeLossOption(std::function<torch::Tensor(etude::Model&, const etude::Batch&)>()));
}

}  // namespace compute_loss_test
