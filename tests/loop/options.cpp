#include "etude/loop/options.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "common/fault_of.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace loop_options_test {

using toy::contains;

struct Stream {
  std::optional<torch::Tensor> next() { return std::nullopt; }
};

etude::TrainerOptions grouped() {
  auto options = toy::options(toy::arguments());
  options.args.train_sampling_strategy = etude::SamplingStrategy::group_by_length;
  options.args.per_device_train_batch_size = 2;
  options.args.gradient_accumulation_steps = 2;
  return options;
}

TEST_CASE("group_by_length puts the longest examples of an update into one batch, long ones first") {
  auto options = grouped();
  std::vector<std::pair<torch::Tensor, std::int64_t>> examples;
  for (std::int64_t i = 0; i < 12; ++i) examples.emplace_back(torch::zeros({i % 6 + 1}), i);
  options.train_dataset = examples;
  etude::check_options(options);
  const auto loader_options = etude::train_loader_options(options, options.args);
  CHECK(!loader_options.shuffle);
  REQUIRE(loader_options.sampler);
  torch::manual_seed(1);
  loader_options.sampler->reset({});
  // 12 examples in updates of 4: too few for several megabatches of more than one update.
  std::vector<std::vector<std::int64_t>> updates;
  while (const auto indices = loader_options.sampler->next(4)) {
    updates.emplace_back();
    for (const auto i : *indices) updates.back().push_back(examples[i].first.size(0));
  }
  REQUIRE(updates.size() == 3);
  CHECK(updates[0][0] == 6);
  for (const auto& lengths : updates)
    CHECK(std::is_sorted(lengths.begin() + 1, lengths.end(), std::greater<>()));
}

TEST_CASE("a custom sampler overrides group_by_length") {
  auto options = grouped();
  options.train_sampler = std::make_shared<torch::data::samplers::SequentialSampler>(2);
  CHECK(etude::train_loader_options(options, options.args).sampler == options.train_sampler);
}

TEST_CASE("a stream can't be grouped by length") {
  auto options = grouped();
  options.args.max_steps = 1;
  options.train_dataset = Stream();
  CHECK(contains(
      toy::fault_of<etude::ArgumentError>([&] { etude::check_options(options); }),
      "train_sampling_strategy is group_by_length: must be another, since train_dataset is a stream"));
}

std::shared_ptr<torch::optim::SGD> sgd_over(const std::vector<torch::Tensor>& parameters) {
  return std::make_shared<torch::optim::SGD>(parameters, 0.5);
}

std::string fault_with_optimizer_over(const std::vector<torch::Tensor>& parameters, toy::Line model = {}) {
  auto options = toy::options(toy::arguments());
  options.model = model;
  options.optimizer = sgd_over(parameters);
  return toy::fault_of<etude::ArgumentError>([&] { etude::check_options(options); });
}

TEST_CASE("an optimizer over the parameters of another model is refused") {
  CHECK(fault_with_optimizer_over(toy::Line()->parameters()) ==
        "optimizer holds none of the model's parameters: must be made from those of the module that is given "
        "as model");
}

TEST_CASE("an optimizer may hold a part of the model, more than the model, or the parameters of the loss") {
  const auto accepts = [](const etude::TrainerOptions& options) {
    const auto said = toy::printed(
        [&] {
          etude::check_options(options);
          etude::warn_of_stale_optimizer(options);
        },
        STDERR_FILENO);
    CHECK(said == "");
  };
  toy::Line model, other;
  auto options = toy::options(toy::arguments());
  options.args.log_level = etude::LogLevel::info;
  options.model = model;
  options.optimizer = sgd_over({model->bias});
  accepts(options);
  options.optimizer = sgd_over({model->weight, model->bias, other->weight});
  accepts(options);
  for (const auto& parameter : model->parameters()) parameter.requires_grad_(false);
  options.optimizer = sgd_over({other->weight});
  accepts(options);
}

TEST_CASE("an optimizer that was created before a layer was replaced is reported") {
  toy::Line model, replaced;
  auto options = toy::options(toy::arguments());
  options.args.log_level = etude::LogLevel::info;
  options.model = model;
  options.optimizer = sgd_over({model->weight, replaced->bias});
  const auto said = toy::printed([&] { etude::Trainer<> trainer(options); }, STDERR_FILENO);
  CHECK(contains(said, "optimizer doesn't hold 1 of the model's parameter tensors, and holds 1 that aren't"));
}

/// A network in which one layer is a plain member.
struct HalfRegisteredImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return last(plain(x)); }
  torch::nn::Linear plain{1, 2};
  torch::nn::Linear last = register_module("last", torch::nn::Linear(2, 1));
};
TORCH_MODULE(HalfRegistered);

std::string said_in_two_trainings(const etude::TrainerOptions& options) {
  return toy::printed(
      [&] {
        etude::Trainer<> trainer(options);
        trainer.train();
        trainer.train();
      },
      STDERR_FILENO);
}

TEST_CASE("an unregistered layer is reported once") {
  auto options = toy::options(toy::arguments());
  options.args.log_level = etude::LogLevel::warning;
  options.model = HalfRegistered();
  const auto said = said_in_two_trainings(options);
  CHECK(
      said.starts_with("etude: warning: the loss depends on tensors that require gradients but aren't "
                       "trained: float32 [2"));
  CHECK(
      contains(said, "]; a layer is trained once it is given to register_module, a parameter to register_"));
  CHECK(std::ranges::count(said, '\n') == 1);
}

TEST_CASE("no layer is reported as missing if the loss's other parameters are trained or frozen elsewhere") {
  auto options = toy::options(toy::arguments());
  options.args.log_level = etude::LogLevel::warning;
  toy::Line model, teacher, beside;
  options.model = model;
  options.optimizer = sgd_over({model->weight, model->bias, beside->weight});
  options.loss = {};
  options.compute_loss = [=](etude::Model& m, const etude::Batch& batch, std::optional<double>) mutable {
    auto x = batch.inputs[0];
    if (m.is_training()) x.requires_grad_();
    torch::Tensor taught;
    {
      const torch::NoGradGuard no_grad;
      taught = teacher->forward(x);
    }
    auto outputs = m.forward(x);
    auto loss = torch::mse_loss(outputs, taught) + beside->forward(x).mean();
    return etude::LossOutput{std::move(loss), std::move(outputs)};
  };
  beside->bias.requires_grad_(false);
  CHECK(said_in_two_trainings(options) == "");
}

TEST_CASE(
    "a gradient penalty, which differentiates by a copy of the inputs, isn't reported as a missing layer") {
  auto options = toy::options(toy::arguments());
  options.args.log_level = etude::LogLevel::warning;
  options.loss = {};
  options.compute_loss = [](etude::Model& model, const etude::Batch& batch, std::optional<double>) {
    auto points = batch.inputs[0].detach().clone().requires_grad_();
    auto outputs = model.forward(etude::Tensors(points));
    const auto gradient = torch::autograd::grad({outputs[0].square().sum()}, {points}, {}, true, true)[0];
    return etude::LossOutput{(gradient - 1).square().mean(), std::move(outputs)};
  };
  CHECK(said_in_two_trainings(options) == "");
}

TEST_CASE("a warning says that the greatest metric is the best if its name is that of an error") {
  const auto said = [](const std::string& metric, std::optional<bool> greater_is_better = {}) {
    auto options = toy::options(toy::arguments());
    options.args.log_level = etude::LogLevel::warning;
    options.args.metric_for_best_model = metric;
    options.args.greater_is_better = greater_is_better;
    return toy::printed([&] { etude::Trainer<> trainer(options); }, STDERR_FILENO);
  };
  for (const char* error : {"error_rate", "eval_wer", "mse", "eval_news_perplexity"}) {
    CHECK(contains(said(error), std::string("metric_for_best_model is ") + error));
    CHECK(contains(said(error), "set greater_is_better to false if it is an error"));
    CHECK(said(error, true) == "");
    CHECK(said(error, false) == "");
  }
  for (const char* other : {"accuracy", "eval_loss", "terror", "f1"}) CHECK(said(other) == "");
}

TEST_CASE("an eval_dataset that was never set counts as missing, and is refused among named ones") {
  auto options = toy::options(toy::arguments());
  options.eval_dataset = etude::Dataset();
  CHECK(options.eval_dataset.empty());
  etude::Trainer<> trainer(options);
  trainer.train();
  CHECK(toy::fault_of<etude::ArgumentError>([&] { trainer.evaluate(); }) ==
        "eval_dataset is not set: an evaluation needs it");
  options.eval_dataset = {{"news", toy::dataset(2)}, {"books", etude::Dataset()}};
  CHECK(toy::fault_of<etude::ArgumentError>([&] { etude::check_options(options); }) ==
        "eval_dataset 'books' is not set: must be a dataset");
}

TEST_CASE("evaluation datasets have distinct names") {
  auto options = toy::options(toy::arguments());
  const auto [x, y] = toy::points(4);
  const etude::Dataset data{x, y};
  options.eval_dataset = {{"news", data}, {"books", data}, {"news", data}};
  CHECK(toy::fault_of<etude::ArgumentError>([&] { etude::Trainer<> trainer(options); }) ==
        "eval_dataset has the name 'news' twice: must be a name for each dataset");
  options.eval_dataset = {{"", data}, {"books", data}};
  CHECK(toy::fault_of<etude::ArgumentError>([&] { etude::Trainer<> trainer(options); }) ==
        "eval_dataset has an empty name: must be one that its metrics can be named by");
  options.eval_dataset = {{"news", data}, {"books", data}};
  CHECK(toy::fault_of<etude::ArgumentError>([&] { etude::Trainer<> trainer(options); }) ==
        "nothing was thrown");
}

TEST_CASE("resume_from_checkpoint is refused as a null pointer") {
  const char* unset = nullptr;
  CHECK_THROWS_WITH_AS(static_cast<void>(etude::TrainOptions{.resume_from_checkpoint = unset}),
                       "resume_from_checkpoint is a null pointer: must be a path, true, false or if_any",
                       etude::ArgumentError);
  static_assert(!std::convertible_to<std::nullptr_t, etude::TrainOptions::Resume>);
}

}  // namespace loop_options_test
