#include <doctest/doctest.h>
#include <torch/script.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/folder.hpp"
#include "common/printed.hpp"
#include "common/ranks.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/loop/gather.hpp"
#include "etude/metrics/mean_absolute_error.hpp"
#include "etude/metrics/streaming.hpp"

namespace loop_evaluate_test {

etude::TrainerOptions evaluation(std::int64_t examples, std::int64_t batch) {
  auto args = toy::arguments();
  args.per_device_eval_batch_size = batch;
  return toy::options(args, 1, examples);
}

TEST_CASE("the loss of an evaluation is the mean over its examples, not over its batches") {
  // The model returns 0 and the targets are 1, 1 + 2/66, ..., so the loss is the mean of their squares.
  double expected = 0;
  for (int i = 0; i < 66; ++i) expected += std::pow(1 + 2 * i / 66., 2) / 66;
  etude::Trainer trainer(evaluation(66, 8));
  CHECK(trainer.evaluate().at("eval_loss") == doctest::Approx(expected).epsilon(1e-5));
}

/// Adds a metric, best at step 2, to each evaluation, and logs a value.
struct AddsScore {
  bool adds_in_all = true;
  std::string prefix = {};
  void on(const etude::EvaluateBegin& e) { prefix = e.metric_key_prefix; }
  void on(etude::Evaluate& e) {
    if (!adds_in_all && !e.state.is_world_process_zero) return;
    e.metrics[prefix + "_score"] = e.state.global_step == 2 ? 1.0 : 0.5;
    e.log("noted", 7.0);
  }
};

/// The logs that were published, and the metrics of all datasets.
struct Published {
  std::vector<etude::Metrics> logs = {}, evaluations = {};
  void on(const etude::Log& e) { logs.push_back(e.logs); }
  void on(const etude::EvaluateAll& e) { evaluations.push_back(e.metrics); }
};

template <class... Processes>
using Scored = etude::Trainer<Processes..., AddsScore, Published, etude::EarlyStoppingCallback>;

etude::TrainerOptions scored(const std::string& folder) {
  auto args = toy::arguments();
  args.output_dir = folder;
  args.num_train_epochs = 9;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.metric_for_best_model = "score";
  args.lr_scheduler_type = etude::SchedulerType::reduce_lr_on_plateau;
  args.lr_scheduler_kwargs = {{"patience", 1}};
  return toy::options(args, 1);
}

TEST_CASE("a metric that is added to an evaluation is logged, and may be the best model's") {
  const toy::Folder folder;
  Scored<> trainer(scored(folder), AddsScore{}, Published{},
                   etude::EarlyStoppingCallback{.early_stopping_patience = 3});
  const auto output = trainer.train();
  CHECK(output.stop_reason == "eval_score has not improved in 3 evaluations");
  CHECK(output.global_step == 5);
  CHECK(trainer.state().best_metric == 1.0);
  CHECK(trainer.state().best_global_step == 2);
  CHECK(trainer.optimizer()->param_groups()[0].lr == doctest::Approx(0.01));  // after steps 3 and 4
  const auto& published = trainer.callback<Published>();
  REQUIRE(published.logs.size() == 6);  // the last is the summary
  for (std::size_t i = 0; i < 5; ++i) {
    for (const auto* name : {"eval_loss", "eval_score", "noted", "epoch", "eval_runtime"}) {
      CAPTURE(name);
      CHECK(published.logs[i].contains(name));
      CHECK(published.evaluations[i].contains(name));
      CHECK(trainer.state().log_history[i].contains(name));
    }
    CHECK(published.logs[i].at("eval_score") == (i == 1 ? 1.0 : 0.5));
  }
  const auto metrics = trainer.evaluate({.metric_key_prefix = "test"});
  CHECK(metrics.at("test_score") == 0.5);
  CHECK(published.logs.back().at("test_score") == 0.5);
}

TEST_CASE("a metric that is added to an evaluation is its dataset's, and known to a resumed training") {
  const toy::Folder folder;
  auto options = scored(folder);
  options.args.metric_for_best_model = "second_score";
  options.args.num_train_epochs = 3;
  options.args.save_strategy = etude::SaveStrategy::epoch;
  options.eval_dataset = {{"first", toy::dataset(1)}, {"second", toy::dataset(2)}};
  Scored<> trainer(options);
  trainer.callback<etude::EarlyStoppingCallback>().early_stopping_patience = 5;
  trainer.train();
  const auto& logs = trainer.callback<Published>().logs;
  REQUIRE(logs.size() == 7);
  CHECK(logs[2].contains("eval_first_score"));
  CHECK_FALSE(logs[2].contains("eval_second_score"));
  CHECK(logs[3].at("eval_second_score") == 1.0);
  CHECK(trainer.state().best_global_step == 2);
  options.args.num_train_epochs = 4;
  const etude::EarlyStoppingCallback patient{.early_stopping_patience = 5};
  Scored<> resumed(options, AddsScore{}, Published{}, patient);
  CHECK(resumed.train({.resume_from_checkpoint = true}).global_step == 4);
  CHECK(resumed.state().best_global_step == 2);
  CHECK(resumed.state().log_history.at(3).at("eval_second_score") == 1.0);
  CHECK(resumed.optimizer()->param_groups()[0].lr == doctest::Approx(0.01));  // after steps 3 and 4
  // With the opposite `greater_is_better`, the schedule starts over.
  options.args.num_train_epochs = 5;
  options.args.greater_is_better = false;
  Scored<> turned(options, AddsScore{}, Published{}, patient);
  CHECK(turned.train({.resume_from_checkpoint = true}).global_step == 5);
  CHECK(turned.optimizer()->param_groups()[0].lr == 0.1);
}

TEST_CASE("with two processes, the metric that the first one adds to an evaluation counts in both") {
  const toy::Folder folder;
  if (toy::launches(2, {"ETUDE_TEST_FOLDER=" + std::string(folder)})) return;
  auto options = scored(std::getenv("ETUDE_TEST_FOLDER"));
  options.train_dataset = toy::dataset(2);
  Scored<etude::DistributedDataParallel> trainer(options, AddsScore{false}, Published{},
                                                 etude::EarlyStoppingCallback{.early_stopping_patience = 3});
  CHECK(trainer.train().global_step == 5);
  CHECK(trainer.state().best_global_step == 2);
  CHECK(trainer.callback<Published>().logs.at(1).at("eval_score") == 1.0);
}

TEST_CASE("evaluate returns the metrics with their prefix, the speed and the epoch") {
  auto options = evaluation(5, 2);
  options.compute_metrics = [](const etude::EvalPrediction& p) {
    return etude::Metrics{{"examples", static_cast<double>(p.label_ids.single().size(0))}, {"eval_named", 7}};
  };
  etude::Trainer trainer(options);
  const auto metrics = trainer.evaluate();
  CHECK(metrics.at("eval_examples") == 5);
  CHECK(metrics.at("eval_named") == 7);
  CHECK(metrics.contains("eval_runtime"));
  CHECK(metrics.contains("eval_samples_per_second"));
  CHECK(metrics.contains("eval_steps_per_second"));
  CHECK(metrics.at("epoch") == 0);
  CHECK(trainer.evaluate({.metric_key_prefix = "mine"}).at("mine_examples") == 5);
}

TEST_CASE("several datasets have their names in the keys of one result") {
  auto options = evaluation(5, 2);
  options.eval_dataset = {{"near", toy::dataset(1)}, {"far", toy::dataset(4)}};
  etude::Trainer trainer(options);
  const auto metrics = trainer.evaluate();
  CHECK(metrics.at("eval_near_loss") == doctest::Approx(1));
  CHECK(metrics.contains("eval_far_loss"));
  CHECK_FALSE(metrics.contains("eval_loss"));
  CHECK(trainer.evaluate({.eval_dataset = toy::dataset(1)}).at("eval_loss") == doctest::Approx(1));
}

TEST_CASE("the deciding metric may belong to one of several datasets") {
  auto options = evaluation(5, 2);
  options.eval_dataset = {{"near", toy::dataset(1)}, {"far", toy::dataset(4)}};
  options.args.eval_strategy = etude::IntervalStrategy::epoch;
  options.args.metric_for_best_model = "far_loss";
  etude::Trainer trainer(options);
  trainer.train();
  CHECK(trainer.state().best_metric.has_value());
  CHECK(trainer.state().best_global_step == 1);
}

TEST_CASE("predict returns the outputs of all examples in order, with metrics if there are labels") {
  toy::Line model;
  torch::NoGradGuard no_grad;
  model->weight.fill_(3);
  auto options = evaluation(1, 4);
  options.model = model;
  etude::Trainer trainer(options);
  const auto [x, y] = toy::points(10);
  const auto prediction = trainer.predict({x, y});
  CHECK(torch::allclose(prediction.predictions.single(), 3 * x));
  CHECK(torch::equal(prediction.label_ids.single(), y));
  CHECK(prediction.metrics.at("test_loss") == doctest::Approx(torch::mse_loss(3 * x, y).item<double>()));
  CHECK(prediction.metrics.contains("test_runtime"));

  const auto unlabelled = trainer.predict(x);
  CHECK(torch::allclose(unlabelled.predictions.single(), 3 * x));
  CHECK(unlabelled.label_ids.empty());
  CHECK_FALSE(unlabelled.metrics.contains("test_loss"));
}

struct ModesImpl : torch::nn::Module {
  ModesImpl() { frozen->eval(); }
  torch::Tensor forward(torch::Tensor x) {
    training_seen = is_training();
    return linear(x);
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(1, 1));
  torch::nn::BatchNorm1d frozen = register_module("frozen", torch::nn::BatchNorm1d(1));
  bool training_seen = true;
};
TORCH_MODULE(Modes);

TEST_CASE("evaluation runs in evaluation mode, and restores each submodule's mode") {
  Modes model;
  model->train();
  model->frozen->eval();
  auto options = evaluation(2, 1);
  options.model = model;
  etude::Trainer trainer(options);
  trainer.evaluate();
  CHECK_FALSE(model->training_seen);
  CHECK(model->is_training());
  CHECK(model->linear->is_training());
  CHECK_FALSE(model->frozen->is_training());
}

struct Stubborn : toy::LineImpl {
  void train(bool on) override {
    if (!on && refuses) throw std::runtime_error("no evaluation mode");
    toy::LineImpl::train(on);
  }
  bool refuses = true;
};

struct LogsAtStart {
  void on(const etude::InitEnd& e) { e.log("mine", 3); }
};

TEST_CASE("an evaluation that can't begin leaves no loader behind, and keeps earlier logs") {
  auto options = evaluation(5, 2);
  const auto model = std::make_shared<Stubborn>();
  options.model = model;
  etude::Trainer<LogsAtStart> trainer(options);
  CHECK_THROWS_WITH(trainer.evaluate(), "no evaluation mode");
  CHECK(trainer.context().eval_dataloader == nullptr);
  model->refuses = false;
  trainer.evaluate();
  etude::Metrics pending;
  trainer.context().pending_logs.take_into(pending);
  CHECK(pending == etude::Metrics{{"mine", 3}});
}

TEST_CASE("compute_metrics gets the result of preprocess_logits_for_metrics") {
  auto options = evaluation(3, 2);
  options.preprocess_logits_for_metrics = [](torch::Tensor logits, torch::Tensor labels) {
    return logits + 10 * labels;
  };
  torch::Tensor seen;
  options.compute_metrics = [&](const etude::EvalPrediction& p) {
    seen = p.predictions;
    return etude::Metrics{};
  };
  etude::Trainer(options).evaluate();
  CHECK(torch::allclose(seen, 10 * toy::points(3).second));
}

TEST_CASE("include_for_metrics adds inputs and losses, one of each per example") {
  auto options = evaluation(3, 2);
  options.args.include_for_metrics = {"inputs", "loss"};
  bool called = false;
  options.compute_metrics = [&](const etude::EvalPrediction& p) {
    called = true;
    CHECK(torch::equal(p.inputs.single(), toy::points(3).first));
    REQUIRE(p.losses.sizes() == torch::IntArrayRef({3}));
    CHECK(p.losses[0].item<double>() == p.losses[1].item<double>());
    return etude::Metrics{};
  };
  etude::Trainer(options).evaluate();
  CHECK(called);
}

TEST_CASE("batch_eval_metrics calls compute_metrics for each batch, and the last result counts") {
  auto options = evaluation(5, 2);
  options.args.batch_eval_metrics = true;
  std::vector<std::pair<std::int64_t, bool>> calls;
  options.compute_metrics = [&](const etude::EvalPrediction& p, bool compute_result) {
    calls.emplace_back(p.label_ids.single().size(0), compute_result);
    return etude::Metrics{{"calls", static_cast<double>(calls.size())}};
  };
  CHECK(etude::Trainer(options).evaluate().at("eval_calls") == 3);
  CHECK(calls == std::vector<std::pair<std::int64_t, bool>>{{2, false}, {2, false}, {1, true}});
}

TEST_CASE("eval_do_concat_batches = false passes the batches separately") {
  auto options = evaluation(5, 2);
  options.args.eval_do_concat_batches = false;
  bool called = false;
  options.compute_metrics = [&](const etude::EvalPrediction& p) {
    called = true;
    CHECK(p.predictions.empty());
    REQUIRE(p.batches.size() == 3);
    CHECK(p.batches[2].predictions.single().size(0) == 1);
    return etude::Metrics{};
  };
  etude::Trainer(options).evaluate();
  CHECK(called);
}

TEST_CASE("eval_accumulation_steps changes nothing in the result") {
  auto options = evaluation(5, 1);
  options.compute_metrics = [](const etude::EvalPrediction& p) {
    return etude::Metrics{{"sum", p.label_ids.single().sum().item<double>()}};
  };
  const auto expected = etude::Trainer(options).evaluate().at("eval_sum");
  options.args.eval_accumulation_steps = 2;
  CHECK(etude::Trainer(options).evaluate().at("eval_sum") == expected);
}

torch::Tensor gathered(const std::vector<torch::Tensor>& parts) {
  etude::GatheredTensor all;
  for (const auto& part : parts) all.add(part);
  return all.take();
}

TEST_CASE("batches of different lengths are padded with -100 on the right, whichever comes first") {
  const auto narrow = torch::ones({2, 3}), wide = torch::full({1, 5}, 2.);
  const auto padded = torch::tensor({{1., 1., 1., -100., -100.}, {1., 1., 1., -100., -100.}}),
             full = torch::tensor({{2., 2., 2., 2., 2.}});
  CHECK(torch::equal(gathered({narrow, wide}), torch::cat({padded, full})));
  CHECK(torch::equal(gathered({wide, narrow}), torch::cat({full, padded})));
  CHECK(torch::equal(gathered({wide, narrow, wide}), torch::cat({full, padded, full})));
}

TEST_CASE("batches of different lengths and dtypes are padded with -100 in the dtype of the whole") {
  const auto wide = torch::tensor({{1, 2, 3}}, torch::kLong), narrow = torch::tensor({{7, 8}}, torch::kByte);
  const auto flags = torch::tensor({{1, 0}}, torch::kLong).to(torch::kBool);
  CHECK(torch::equal(gathered({wide, narrow, flags}),
                     torch::tensor({{1, 2, 3}, {7, 8, -100}, {1, 0, -100}}, torch::kLong)));
  CHECK(torch::equal(gathered({narrow, wide}), torch::tensor({{7, 8, -100}, {1, 2, 3}}, torch::kLong)));
  CHECK(torch::equal(gathered({flags, wide}), torch::tensor({{1, 0, -100}, {1, 2, 3}}, torch::kLong)));
}

TEST_CASE("batches gathered one by one, or in another dtype, are joined like torch::cat") {
  CHECK(torch::equal(gathered({torch::tensor(1), torch::tensor(2)}), torch::tensor({1, 2})));
  CHECK(torch::equal(gathered({torch::tensor({1}), torch::tensor({0.5})}), torch::tensor({1., 0.5})));
  CHECK_THROWS_WITH_AS(
      gathered({torch::ones({1, 2}), torch::ones({1})}),
      "batches must all have the same number of dimensions, not float32 [1, 2] and then float32 [1]",
      etude::DataError);
}

TEST_CASE("a batch with another number of outputs than the first is refused") {
  for (const bool more : {false, true}) {
    etude::Gathered all({}, true, {});
    const etude::Tensors one(torch::ones({1})), two(torch::ones({1}), torch::ones({1}));
    all.add({more ? one : two, {}, {}, {}, {}}, 1);
    CHECK_THROWS_WITH_AS(all.add({more ? two : one, {}, {}, {}, {}}, 1),
                         doctest::Contains("batches must all have the same number of tensors"),
                         etude::DataError);
  }
}

TEST_CASE("the predictions of a dataset use memory that is allocated once, and only as much as needed") {
  etude::GatheredTensor all(1000);
  all.add(torch::ones({8, 3}));
  const auto* place = all.take().data_ptr();
  for (int i = 1; i < 125; ++i) all.add(torch::full({8, 3}, static_cast<float>(i)));
  const auto taken = all.take();
  CHECK(taken.data_ptr() == place);
  CHECK(taken.storage().nbytes() == 1000 * 3 * sizeof(float));
  CHECK(taken[999][2].item<float>() == 124);

  etude::Trainer trainer(evaluation(1, 4));
  const auto prediction = trainer.predict(toy::points(10).first);
  CHECK(prediction.predictions.single().storage().nbytes() == 10 * sizeof(float));
}

struct SeveralImpl : torch::nn::Module {
  std::map<std::string, torch::Tensor> forward(torch::Tensor a, torch::Tensor b) {
    return {{"difference", weight * (a - b)}, {"sum", weight * (a + b)}};
  }
  torch::Tensor weight = register_parameter("weight", torch::ones({1}));
};
TORCH_MODULE(Several);

TEST_CASE("inputs may be several and outputs named; ignore_keys leaves some out") {
  const auto a = torch::arange(4.).reshape({4, 1}), b = torch::ones({4, 1});
  auto args = toy::arguments();
  etude::Trainer trainer(
      {.model = Several(),
       .args = args,
       .loss = [](const etude::Tensors& outputs,
                  const etude::Tensors& labels) { return torch::mse_loss(outputs.at("sum"), labels); },
       .train_dataset = etude::Dataset(etude::Tensors(a, b), a + b)});
  const auto all = trainer.predict(etude::Dataset(etude::Tensors(a, b), a + b));
  CHECK(all.predictions.names() == std::vector<std::string>{"difference", "sum"});
  CHECK(torch::equal(all.predictions.at("difference"), a - b));
  CHECK(all.metrics.at("test_loss") == 0);
  const auto some =
      trainer.predict(etude::Dataset(etude::Tensors(a, b), a + b), {.ignore_keys = {"difference"}});
  CHECK(some.predictions.names() == std::vector<std::string>{"sum"});
  CHECK(trainer.train().training_loss == 0);
}

struct WithLossImpl : torch::nn::Module {
  std::pair<torch::Tensor, torch::Tensor> forward(torch::Tensor x, torch::Tensor y) {
    const auto output = x * weight;
    return {torch::mse_loss(output, y), output};
  }
  torch::Tensor weight = register_parameter("weight", torch::zeros({1}));
};
TORCH_MODULE(WithLoss);

TEST_CASE("a model that computes its loss gets the labels, and its other outputs are the predictions") {
  auto options = evaluation(4, 2);
  options.model = WithLoss();
  options.loss = {};
  etude::Trainer trainer(options);
  const auto [x, y] = toy::points(4);
  const auto prediction = trainer.predict({x, y});
  CHECK(prediction.metrics.at("test_loss") == doctest::Approx(y.square().mean().item<double>()));
  CHECK(torch::equal(prediction.predictions.single(), torch::zeros({4, 1})));
  options.train_dataset = {torch::ones({1, 1}), torch::ones({1, 1})};
  options.model = WithLoss();
  etude::Trainer learning(options);
  CHECK(learning.train().training_loss == 1);
  CHECK(learning.model().as<WithLossImpl>().weight.item<double>() > 0);
}

/// The mean square of the model's output.
etude::LossOutput energy(etude::Model& model, const etude::Batch& batch, std::optional<double>) {
  auto outputs = model.forward(batch);
  return {outputs.single().square().mean(), outputs};
}

struct Energetic : etude::TrainerBase<Energetic> {
  using TrainerBase::TrainerBase;
  etude::LossOutput compute_loss(const etude::Batch& batch, std::optional<double> items = {}) {
    return energy(model(), batch, items);
  }
};

toy::Line threefold() {
  toy::Line model;
  model->weight.data().fill_(3);
  return model;
}

TEST_CASE("data without labels has a loss if compute_loss needs no labels") {
  const auto [x, y] = toy::points(10);
  const auto expected = doctest::Approx(9 * x.square().mean().item<double>());
  auto options = evaluation(1, 4);
  options.model = threefold();
  options.loss = {};
  options.eval_dataset = x;
  Energetic own(options);
  CHECK(own.evaluate().at("eval_loss") == expected);
  options.compute_loss = energy;
  etude::Trainer trainer(options);
  CHECK(trainer.evaluate().at("eval_loss") == expected);
  CHECK(torch::allclose(trainer.predict(x).predictions.single(), 3 * x));
}

TEST_CASE("data without labels has no loss if compute_loss needs labels") {
  const auto [x, y] = toy::points(10);
  auto options = evaluation(1, 4);
  options.loss = {};
  std::int64_t calls = 0;
  options.compute_loss = [&](etude::Model& model, const etude::Batch& batch, std::optional<double>) {
    ++calls;
    auto outputs = model.forward(batch);
    return etude::LossOutput{torch::mse_loss(outputs, batch.labels), outputs};
  };
  etude::Trainer trainer(options);
  CHECK_FALSE(trainer.evaluate({.eval_dataset = x}).contains("eval_loss"));
  CHECK(calls == 1);  // The first batch shows that it needs labels.
  CHECK(trainer.evaluate({.eval_dataset = {x, y}}).contains("eval_loss"));
  options.compute_loss = [](etude::Model&, const etude::Batch& batch, std::optional<double>) {
    return etude::LossOutput{batch.inputs.at("misspelt"), {}};
  };
  CHECK_THROWS_AS(etude::Trainer(options).evaluate({.eval_dataset = x}), etude::DataError);
}

TEST_CASE("an evaluation without labels says once that compute_metrics is not called, a prediction doesn't") {
  const auto points = toy::points(10);
  const auto &x = points.first, &y = points.second;
  auto options = evaluation(1, 4);
  options.args.log_level = etude::LogLevel::warning;
  options.compute_metrics = [](const etude::EvalPrediction&) { return etude::Metrics{{"seen", 1}}; };
  etude::Trainer<etude::NoDefaultCallbacks> trainer(options);
  CHECK(toy::printed(
            [&] {
              (void)trainer.predict(x);
              (void)trainer.evaluate({.eval_dataset = etude::Dataset(x, y)});
            },
            STDERR_FILENO)
            .empty());
  const auto said = toy::printed(
      [&] {
        for (int i = 0; i < 2; ++i) CHECK_FALSE(trainer.evaluate({.eval_dataset = x}).contains("eval_seen"));
      },
      STDERR_FILENO);
  CHECK(said ==
        "etude: warning: the dataset of the evaluation 'eval' has no labels: compute_metrics is not called, "
        "and its metrics are missing\n");
}

TEST_CASE("compute_loss gets no number of items without labels") {
  const auto [x, y] = toy::points(4);
  auto options = evaluation(1, 4);
  options.loss = {};
  options.train_dataset = x;
  std::vector<bool> had_number;
  options.compute_loss = [&](etude::Model& model, const etude::Batch& batch, std::optional<double> number) {
    had_number.push_back(number.has_value());
    return energy(model, batch, number);
  };
  etude::Trainer trainer(options);
  trainer.train();
  trainer.evaluate({.eval_dataset = x});
  CHECK(had_number == std::vector<bool>(5, false));
}

TEST_CASE("an evaluation in the middle of an update keeps the update's number of items") {
  struct Evaluates {
    void on(const etude::ForwardBegin& e) { e.trainer.evaluate(); }
  };
  auto options = evaluation(1, 1);
  options.train_dataset = toy::dataset(6);
  options.args.per_device_train_batch_size = 3;
  options.args.gradient_accumulation_steps = 2;
  options.loss = {};
  std::vector<double> numbers;
  options.compute_loss = [&](etude::Model& model, const etude::Batch& batch, std::optional<double> number) {
    if (model.is_training()) numbers.push_back(number.value());
    return energy(model, batch, number);
  };
  etude::Trainer<Evaluates>(options).train();
  CHECK(numbers == std::vector<double>{6, 6});
}

template <bool is_named>
struct EnergyModel : torch::nn::Module {
  etude::Tensors forward(const etude::Tensors& inputs) {
    const auto output = inputs[0] * weight;
    const auto loss = output.square().mean();
    return is_named ? etude::Tensors({loss, output}, {"loss", "logits"}) : etude::Tensors(loss, output);
  }
  torch::Tensor weight = register_parameter("weight", 3 * torch::ones({1}));
};

TEST_CASE_TEMPLATE("data without labels has the loss that the model returns", M, EnergyModel<true>,
                   EnergyModel<false>) {
  const auto [x, y] = toy::points(10);
  auto options = evaluation(1, 10);
  options.model = std::make_shared<M>();
  options.loss = {};
  options.eval_dataset = x;
  etude::Trainer trainer(options);
  const double expected = 9 * x.square().mean().template item<double>();
  CHECK(trainer.evaluate().at("eval_loss") == doctest::Approx(expected));
  const auto prediction = trainer.predict(x);
  CHECK(prediction.metrics.at("test_loss") == doctest::Approx(expected));
  CHECK(torch::allclose(prediction.predictions.single(), 3 * x));
  // A prediction isn't mistaken for the model's loss.
  options.model = threefold();
  CHECK_FALSE(etude::Trainer(options).evaluate().contains("eval_loss"));
}

TEST_CASE("the error of a gradient penalty in an evaluation gives the remedy, which works") {
  const auto [x, y] = toy::points(10);
  auto options = evaluation(1, 4);
  options.loss = {};
  options.model = threefold();
  options.eval_dataset = x;
  const auto penalty = [](etude::Model& model, const etude::Batch& batch, std::optional<double>) {
    auto points = batch.inputs.single().detach().clone().requires_grad_();
    const auto outputs = model.forward(etude::Tensors(points));
    const auto gradient = torch::autograd::grad({outputs.single().sum()}, {points}, {}, true, true)[0];
    return etude::LossOutput{(gradient - 1).square().mean(), outputs};
  };
  options.compute_loss = penalty;
  CHECK_THROWS_WITH_AS(etude::Trainer(options).evaluate(), doctest::Contains("set eval_enable_grad"),
                       etude::DataError);
  options.eval_dataset = {x, y};
  CHECK_THROWS_WITH_AS(etude::Trainer(options).evaluate(), doctest::Contains("set eval_enable_grad"),
                       etude::DataError);
  options.args.eval_enable_grad = true;
  CHECK(etude::Trainer(options).evaluate().at("eval_loss") == doctest::Approx(4));
}

/// The energy k x^2 / 2 and the force -k x, its negative derivative with respect to the position.
struct Spring : torch::nn::Module {
  torch::Tensor stiffness = register_parameter("stiffness", torch::full({1}, 3.f));
  etude::Tensors forward(const etude::Tensors& inputs) {
    auto x = inputs.single().detach().requires_grad_();
    const auto energy = stiffness * x.square() / 2;
    const auto force = -torch::autograd::grad({energy.sum()}, {x}, {}, is_training(), is_training())[0];
    return {{"energy", energy}, {"force", force}};
  }
};

TEST_CASE("with eval_enable_grad a model predicts derivatives, and no result keeps a graph") {
  const auto x = torch::linspace(-1, 1, 6).unsqueeze(1);
  auto options = evaluation(1, 4);
  options.model = std::make_shared<Spring>();
  options.loss = {};
  options.compute_loss = [](etude::Model& model, const etude::Batch& batch, std::optional<double>) {
    auto outputs = model.forward(batch.inputs);
    return etude::LossOutput{(outputs["force"] - batch.labels[0]).square().mean(), outputs};
  };
  options.train_dataset = {x, -2 * x};
  options.eval_dataset = {x, -2 * x};
  CHECK_THROWS_AS(etude::Trainer(options).predict(x), c10::Error);
  options.args.eval_enable_grad = true;
  options.args.max_steps = 1;
  bool has_graph = true;
  options.compute_metrics = [&](const etude::EvalPrediction& p) {
    has_graph = p.predictions["force"].requires_grad();
    return etude::Metrics();
  };
  struct Seen {
    bool* has_graph;
    void on(const etude::PredictionStep& e) {
      *has_graph |= e.loss.requires_grad() || e.output[0].requires_grad();
    }
  };
  bool step_has_graph = false;
  etude::Trainer trainer(options, Seen{&step_has_graph});
  // The mean square of -1, -0.6, ..., 1 is 7/15.
  CHECK(trainer.evaluate().at("eval_loss") == doctest::Approx(7 / 15.));
  const auto predictions = trainer.predict({x, -2 * x}).predictions;
  CHECK(torch::allclose(predictions["force"], -3 * x));
  CHECK_FALSE((has_graph || step_has_graph || predictions["energy"].requires_grad()));
  trainer.train();
  CHECK(options.model.named_parameters()[0].second.item<float>() < 3);
}

TEST_CASE("an evaluation that adds to the gradients of the weights is an error") {
  auto options = evaluation(4, 4);
  options.args.eval_enable_grad = true;
  options.args.eval_on_start = true;
  const auto mse = options.loss;
  options.loss = {};
  options.compute_loss = [](etude::Model& model, const etude::Batch& batch, std::optional<double>) {
    auto outputs = model.forward(batch.inputs);
    auto loss = torch::mse_loss(outputs[0], batch.labels[0]);
    if (!model.is_training()) loss.backward({}, true);
    return etude::LossOutput{loss, outputs};
  };
  const auto message = doctest::Contains("must use torch::autograd::grad");
  CHECK_THROWS_WITH_AS(etude::Trainer(options).evaluate(), message, etude::ArgumentError);
  CHECK_THROWS_WITH_AS(etude::Trainer(options).train(), message, etude::ArgumentError);
}

struct Named {
  std::size_t size() const { return 4; }
  std::map<std::string, torch::Tensor> get(std::size_t i) const {
    return {{"x", torch::full({1}, static_cast<float>(i))},
            {"y", torch::full({1}, 2.f * static_cast<float>(i))}};
  }
};

TEST_CASE("label_names selects the fields of an example that are labels") {
  auto options = evaluation(4, 4);
  options.args.label_names = {"y"};
  etude::Trainer trainer(options);
  const auto prediction = trainer.predict(Named{});
  CHECK(torch::equal(prediction.label_ids.single(), torch::tensor({{0.f}, {2.f}, {4.f}, {6.f}})));
  CHECK(prediction.metrics.contains("test_loss"));
}

TEST_CASE("a loss with more than one element is refused, and so are unknown ignore_keys") {
  auto options = evaluation(4, 4);
  options.loss = {};  // The model's output is used as the loss.
  CHECK_THROWS_AS(etude::Trainer(options).evaluate(), etude::DataError);
  CHECK_THROWS_AS(etude::Trainer(evaluation(4, 4)).predict(toy::dataset(2), {.ignore_keys = {"hidden"}}),
                  etude::DataError);
}

struct LogsInEvaluate {
  void on(const etude::Evaluate& e) { e.log("f1", 0.5); }
};

TEST_CASE("a value that is logged when the metrics are known is in the evaluation's log") {
  auto options = evaluation(2, 1);
  options.args.eval_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<LogsInEvaluate> trainer(options);
  trainer.train();
  CHECK(trainer.state().log_history.at(0).contains("eval_loss"));
  CHECK(trainer.state().log_history.at(0).at("f1") == 0.5);
  CHECK_FALSE(trainer.state().log_history.at(1).contains("f1"));
}

TEST_CASE("an empty dataset is refused by name") {
  auto options = evaluation(4, 4);
  options.eval_dataset = etude::Dataset(torch::zeros({0, 1}), torch::zeros({0, 1}));
  CHECK_THROWS_WITH_AS(etude::Trainer(options).evaluate(),
                       "the dataset to evaluate or predict: it has no examples", etude::DataError);
}

struct OwnEvaluationData : etude::TrainerBase<OwnEvaluationData> {
  using TrainerBase::TrainerBase;
  std::unique_ptr<etude::DataLoader> get_eval_dataloader(const etude::Dataset&) {
    return TrainerBase::get_eval_dataloader(toy::dataset(3));
  }
};

TEST_CASE("a dataset without examples that a training will evaluate is refused before its first step") {
  auto args = toy::arguments();
  args.eval_strategy = etude::IntervalStrategy::epoch;
  auto options = toy::options(args);
  const etude::Dataset empty(torch::zeros({0, 1}), torch::zeros({0, 1}));
  options.eval_dataset = empty;
  etude::Trainer<> trainer(options);
  CHECK_THROWS_WITH_AS(trainer.train(), "eval_dataset: it has no examples", etude::DataError);
  CHECK(trainer.state().global_step == 0);
  options.eval_dataset = {{"news", toy::dataset(2)}, {"books", empty}};
  CHECK_THROWS_WITH_AS(etude::Trainer<>(options).train(), "eval_dataset 'books': it has no examples",
                       etude::DataError);
  OwnEvaluationData(options).train();
  options.args.eval_strategy = etude::IntervalStrategy::no;
  etude::Trainer<>(options).train();
}

/// y = 3 x without any dimension of size 1, under the name logits if `named`.
struct SqueezingImpl : torch::nn::Module {
  explicit SqueezingImpl(bool named_ = false) : named(named_) {}
  etude::Tensors forward(torch::Tensor x) {
    const auto y = (x * weight).squeeze();
    return named ? etude::Tensors({{"logits", y}}) : etude::Tensors(y);
  }
  bool named;
  torch::Tensor weight = register_parameter("weight", torch::full({1}, 3.));
};
TORCH_MODULE(Squeezing);

torch::jit::Module squeezing_script() {
  torch::jit::Module script("Squeezing");
  script.register_parameter("weight", torch::full({1}, 3.), /*is_buffer=*/false);
  script.define("def forward(self, x):\n  return {'logits': (x * self.weight).squeeze()}\n");
  return script;
}

struct SeesRows {
  void on(const etude::PredictionStep& e) { CHECK(e.output.single().size(0) == e.batch.size); }
};

TEST_CASE("an output that a batch of one example leaves without dimensions is a prediction, and no metric") {
  const auto x = torch::arange(1, 6).to(torch::kFloat).reshape({5, 1}), y = 3 * x.squeeze(1) + 1;
  const auto expected = torch::tensor({3.f, 6.f, 9.f, 12.f, 15.f});
  for (const etude::Model& model :
       {etude::Model(Squeezing()), etude::Model(Squeezing(true)), etude::Model(squeezing_script())})
    for (const std::int64_t batch : {1, 2, 5})
      for (const bool by_batch : {false, true})
        for (const bool has_loss : {false, true}) {
          CAPTURE(batch);
          CAPTURE(by_batch);
          CAPTURE(has_loss);
          auto options = evaluation(1, batch);
          options.args.batch_eval_metrics = by_batch;
          options.model = model;
          options.loss = {};
          if (has_loss)
            options.loss = [](const torch::Tensor& output, const torch::Tensor& target) {
              return (output - target).abs().mean();
            };
          options.eval_dataset = {x, y};
          options.compute_metrics = etude::metrics::streaming(etude::metrics::MeanAbsoluteError());
          etude::Trainer<etude::Quiet, SeesRows> trainer(options);
          if (has_loss) {
            const auto metrics = trainer.evaluate();
            CHECK(metrics.at("eval_mae") == doctest::Approx(1));
            CHECK(metrics.at("eval_loss") == doctest::Approx(1));
            CHECK_FALSE(metrics.contains("eval_logits"));
            CHECK(torch::equal(trainer.predict({x, y}).predictions.single(), expected));
          }
          CHECK(torch::equal(trainer.predict(x).predictions.single(), expected));
          CHECK(
              torch::equal(trainer.predict(x.slice(0, 0, 1)).predictions.single(), expected.slice(0, 0, 1)));
        }
}

TEST_CASE("outputs without dimensions for a single example are all predictions of a trainer without loss") {
  struct TwoImpl : torch::nn::Module {
    std::pair<torch::Tensor, torch::Tensor> forward(torch::Tensor x) {
      const auto y = (x * weight).squeeze();
      return {y, -y};
    }
    torch::Tensor weight = register_parameter("weight", torch::full({1}, 3.));
  };
  auto options = evaluation(1, 2);
  options.model = std::make_shared<TwoImpl>();
  options.loss = {};
  etude::Trainer<etude::Quiet> trainer(options);
  for (const std::int64_t n : {1, 2, 3}) {
    const auto x = torch::arange(1, n + 1).to(torch::kFloat).reshape({n, 1});
    const auto predictions = trainer.predict(x).predictions;
    REQUIRE(predictions.size() == 2);
    CHECK(torch::equal(predictions[0], 3 * x.squeeze(1)));
    CHECK(torch::equal(predictions[1], -3 * x.squeeze(1)));
  }
}

/// Images, one number each, with as many boxes as the number says.
struct Boxes {
  std::int64_t size() const { return std::ssize(counts); }
  std::pair<torch::Tensor, torch::Tensor> get(std::int64_t i) const {
    const auto count = counts[static_cast<std::size_t>(i)];
    return {torch::full({1}, static_cast<float>(count)), torch::full({count, 1}, static_cast<float>(i))};
  }
  std::vector<std::int64_t> counts;
};

/// The boxes of all images in one tensor [boxes, 2]: the image in the batch, and the image in the dataset.
etude::Batch with_boxes(const std::vector<etude::Example>& examples, etude::Division division) {
  std::vector<torch::Tensor> images, rows;
  for (const auto& example : examples) {
    const auto& each = example.labels[0];
    rows.push_back(torch::cat({torch::full({each.size(0), 1}, static_cast<float>(images.size())), each}, 1));
    images.push_back(example.inputs[0]);
  }
  return {torch::stack(images), {torch::cat(rows), std::move(division)}, std::ssize(examples)};
}

etude::TrainerOptions detection(etude::Division division) {
  auto options = evaluation(1, 2);
  options.loss = {};
  options.compute_loss = [](etude::Model& model, const etude::Batch& batch, std::optional<double>) {
    auto outputs = model.forward(batch);
    return etude::LossOutput{outputs[0].mean(), outputs};
  };
  options.data_collator = [=](const std::vector<etude::Example>& examples) {
    return with_boxes(examples, division);
  };
  options.eval_dataset = Boxes{{1, 2, 0, 3, 2}};
  return options;
}

/// The numbers of the images that have these boxes.
torch::Tensor images_of_boxes() { return torch::tensor({0.f, 1.f, 1.f, 3.f, 3.f, 3.f, 4.f, 4.f}); }

TEST_CASE("labels whose rows have the index of their example have its number in the whole dataset") {
  auto options = detection(etude::RowsByIndex{});
  torch::Tensor seen;
  options.compute_metrics = [&](const etude::EvalPrediction& p) {
    seen = p.label_ids.single();
    return etude::Metrics();
  };
  etude::Trainer<etude::Quiet> trainer(options);
  trainer.evaluate();
  CHECK(torch::equal(seen, torch::stack({images_of_boxes(), images_of_boxes()}, 1)));
  CHECK(torch::equal(trainer.predict(Boxes{{1, 2, 0, 3, 2}}).label_ids.single(), seen));
}

TEST_CASE("in two processes, rows with the index of their example are those of one process") {
  if (toy::launches(2)) return;
  for (const std::int64_t count : {4, 5}) {  // the last batch has an example for one process only
    auto options = detection(etude::RowsByIndex{});
    options.args.per_device_eval_batch_size = 1;
    std::vector<std::int64_t> counts{1, 2, 0, 3, 2};
    counts.resize(static_cast<std::size_t>(count));
    etude::Trainer<etude::DistributedDataParallel, etude::Quiet> trainer(options);
    const auto labels = trainer.predict(Boxes{counts}).label_ids.single();
    const auto expected = images_of_boxes().slice(0, 0, count == 4 ? 6 : 8);
    CHECK(torch::equal(labels, torch::stack({expected, expected}, 1)));
  }
}

TEST_CASE("in two processes, what all examples share is taken once for each batch") {
  if (toy::launches(2)) return;
  auto options = detection({});
  options.args.per_device_eval_batch_size = 1;
  options.data_collator = [](const std::vector<etude::Example>& examples) {
    auto batch = with_boxes(examples, {});
    batch.labels = {torch::tensor({5, 6, 7}), etude::SharedByExamples{}};
    return batch;
  };
  etude::Trainer<etude::DistributedDataParallel, etude::Quiet> trainer(options);
  CHECK(
      torch::equal(trainer.predict(Boxes{{1, 2, 0}}).label_ids.single(), torch::tensor({5, 6, 7, 5, 6, 7})));
}

TEST_CASE("labels that don't say how their rows divide aren't joined") {
  etude::Trainer<etude::Quiet> trainer(detection({}));
  CHECK_NOTHROW(trainer.evaluate());  // only the loss is kept
  CHECK_THROWS_WITH_AS(
      trainer.predict(Boxes{{1, 2, 0}}),
      doctest::Contains("the batches of an evaluation or prediction are joined, and label 0 is "
                        "float32 [3, 2] in a batch of 2 examples: its first dimension must be"),
      etude::DataError);
  auto apart = detection({});
  apart.args.eval_do_concat_batches = false;
  std::size_t batches = 0;
  apart.compute_metrics = [&](const etude::EvalPrediction& p) {
    batches = p.batches.size();
    return etude::Metrics();
  };
  etude::Trainer<etude::Quiet>(apart).evaluate();
  CHECK(batches == 3);
}

TEST_CASE("an index that its type can't hold in the whole dataset is refused") {
  auto options = detection(etude::RowsByIndex{});
  options.args.per_device_eval_batch_size = 100;
  options.data_collator = [](const std::vector<etude::Example>& examples) {
    auto batch = with_boxes(examples, etude::RowsByIndex{});
    batch.labels[0] = batch.labels[0].to(torch::kChar);
    return batch;
  };
  etude::Trainer<etude::Quiet> trainer(options);
  CHECK_THROWS_WITH_AS(trainer.predict(Boxes{std::vector<std::int64_t>(200, 1)}),
                       doctest::Contains("RowsByIndex: int8 can't hold the example's number among 200"),
                       etude::DataError);
}

}  // namespace loop_evaluate_test
