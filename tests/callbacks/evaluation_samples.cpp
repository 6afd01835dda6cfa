#include "etude/callbacks/evaluation_samples.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/ranks.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/model/carried_state.hpp"
#include "etude/model/units.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"

namespace callbacks_evaluation_samples_test {

using etude::EvaluationSamplesCallback;
using Names = std::vector<std::string>;

/// The texts that were logged, with their names.
struct Texts {
  std::vector<std::pair<std::string, std::string>> heard = {};
  void on(const etude::LogSamples& e) {
    for (const auto& sample : e.samples)
      heard.emplace_back(sample.name, std::get<std::string>(sample.content));
  }
  Names names() const {
    Names names;
    for (const auto& [name, text] : heard) names.push_back(name);
    return names;
  }
};

etude::TrainingArguments arguments(int epochs) {
  auto args = toy::arguments();
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.num_train_epochs = epochs;
  return args;
}

std::vector<etude::Sample> constant(const etude::Evaluate&) { return {etude::text_sample("t", "x")}; }

std::vector<etude::Sample> random_number(const etude::Evaluate&) {
  return {etude::text_sample("t", std::to_string(torch::rand({}).item<double>()))};
}

/// Trains with dropout, which uses the same generator as `make`.
template <class... Callbacks>
std::vector<torch::Tensor> trained(Callbacks... callbacks) {
  auto options = toy::options(arguments(3), 8, 4);
  torch::manual_seed(3);
  options.model =
      torch::nn::Sequential(torch::nn::Linear(1, 16), torch::nn::Dropout(0.5), torch::nn::Linear(16, 1));
  etude::Trainer<Callbacks...> trainer(options, callbacks...);
  trainer.train();
  std::vector<torch::Tensor> weights;
  for (const auto& [name, tensor] : trainer.model().state_dict()) weights.push_back(tensor.detach().clone());
  return weights;
}

TEST_CASE("samples come with each evaluation of a training, under its prefix") {
  etude::Trainer<EvaluationSamplesCallback, Texts> trainer(toy::options(arguments(2)),
                                                           EvaluationSamplesCallback{.make = constant});
  trainer.train();
  CHECK(trainer.callback<Texts>().names() == Names{"eval_t", "eval_t"});
}

TEST_CASE("each dataset has samples under its own prefix") {
  auto options = toy::options(arguments(1));
  options.eval_dataset = {{"near", toy::dataset(1)}, {"far", toy::dataset(3)}};
  std::vector<std::int64_t> sizes;
  const auto make = [&](const etude::Evaluate& e) {
    sizes.push_back(*e.eval_dataloader->examples());
    return constant(e);
  };
  etude::Trainer<EvaluationSamplesCallback, Texts> trainer(options, EvaluationSamplesCallback{.make = make});
  trainer.train();
  CHECK(trainer.callback<Texts>().names() == Names{"eval_near_t", "eval_far_t"});
  CHECK(sizes == std::vector<std::int64_t>{1, 3});
}

TEST_CASE("samples of every second evaluation come with the second, the fourth, ...") {
  std::vector<std::int64_t> steps;
  const auto make = [&](const etude::Evaluate& e) {
    steps.push_back(e.state.global_step);
    return constant(e);
  };
  auto options = toy::options(arguments(5), 2);
  // Two datasets count as one evaluation.
  options.eval_dataset = {{"a", toy::dataset(1)}, {"b", toy::dataset(1)}};
  etude::Trainer<EvaluationSamplesCallback> trainer(
      options, EvaluationSamplesCallback{.every_n_evaluations = 2, .make = make});
  trainer.train();
  CHECK(steps == std::vector<std::int64_t>{4, 4, 8, 8});
}

TEST_CASE("a training with samples has the weights of one without, to the bit") {
  const auto with = trained(EvaluationSamplesCallback{.make = random_number}), without = trained();
  REQUIRE(with.size() == without.size());
  for (std::size_t i = 0; i < with.size(); ++i) CHECK(torch::equal(with[i], without[i]));
}

TEST_CASE("each evaluation's random numbers are those of the seed") {
  etude::Trainer<EvaluationSamplesCallback, Texts> trainer(
      toy::options(arguments(2)), EvaluationSamplesCallback{.seed = 7, .make = random_number});
  trainer.train();
  torch::manual_seed(7);
  const auto expected = std::to_string(torch::rand({}).item<double>());
  const auto& heard = trainer.callback<Texts>().heard;
  REQUIRE(heard.size() == 2);
  CHECK(heard[0].second == expected);
  CHECK(heard[1].second == expected);
}

TEST_CASE("callbacks behind it keep the random numbers that an evaluation has") {
  struct Draws {
    std::vector<double> drawn = {};
    void on(const etude::Evaluate&) { drawn.push_back(torch::rand({}).item<double>()); }
  };
  etude::Trainer<EvaluationSamplesCallback, Draws> with(toy::options(arguments(2)),
                                                        EvaluationSamplesCallback{.make = random_number});
  with.train();
  etude::Trainer<Draws> without(toy::options(arguments(2)));
  without.train();
  CHECK(with.callback<Draws>().drawn == without.callback<Draws>().drawn);
}

TEST_CASE("samples are made in evaluation mode, without gradients, and with zeros as carried state") {
  struct CarriesImpl : torch::nn::Module {
    torch::Tensor forward(torch::Tensor x) {
      sum->set("s", sum->get("s", {1}) + 1);
      return x * weight;
    }
    torch::Tensor weight = register_parameter("weight", torch::ones({1}));
    etude::CarriedState sum = register_module("sum", etude::CarriedState());
  };
  const auto model = std::make_shared<CarriesImpl>();
  auto args = arguments(1);
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  auto options = toy::options(args, 2, 3);
  options.model = model;
  int calls = 0;
  const auto make = [&](const etude::Evaluate&) -> std::vector<etude::Sample> {
    ++calls;
    CHECK_FALSE(model->is_training());
    CHECK_FALSE(torch::GradMode::is_enabled());
    CHECK(model->sum->get("s", {1}).item<double>() == 0);
    model->forward(torch::ones({1}));
    return {};
  };
  etude::Trainer<EvaluationSamplesCallback, Texts> trainer(options, EvaluationSamplesCallback{.make = make});
  trainer.train();
  CHECK(calls == 1);
  CHECK(trainer.callback<Texts>().heard.empty());
  CHECK(model->is_training());
  CHECK(model->sum->get("s", {1}).item<double>() == 2);  // the training's two batches
}

TEST_CASE("another training begins to count anew") {
  etude::Trainer<EvaluationSamplesCallback, Texts> trainer(
      toy::options(arguments(3)), EvaluationSamplesCallback{.every_n_evaluations = 2, .make = constant});
  trainer.train();
  CHECK(trainer.callback<Texts>().heard.size() == 1);
  trainer.train();  // the first of its three evaluations would be the fourth
  CHECK(trainer.callback<Texts>().heard.size() == 2);
}

TEST_CASE("a resumed training goes on counting evaluations") {
  const toy::Folder folder;
  auto args = arguments(1);
  toy::save_to(folder, args, 2);
  const EvaluationSamplesCallback callback{.every_n_evaluations = 2, .make = constant};
  etude::Trainer<EvaluationSamplesCallback, Texts>(toy::options(args), callback).train();
  args.num_train_epochs = 2;
  etude::Trainer<EvaluationSamplesCallback, Texts> trainer(toy::options(args), callback);
  trainer.train({.resume_from_checkpoint = true});
  CHECK(trainer.callback<Texts>().names() == Names{"eval_t"});
}

TEST_CASE("in two processes each one makes the same samples") {
  if (toy::launches(2)) return;
  etude::Trainer<etude::DistributedDataParallel, EvaluationSamplesCallback, Texts> trainer(
      toy::options(arguments(1), 4, 4), EvaluationSamplesCallback{.make = random_number});
  trainer.train();
  torch::manual_seed(42);
  const auto& heard = trainer.callback<Texts>().heard;
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].second == std::to_string(torch::rand({}).item<double>()));
}

/// Three layers, each of which may be shared among processes.
struct StackImpl : torch::nn::Module {
  StackImpl() {
    for (int i = 0; i < 3; ++i) layers->push_back(torch::nn::Linear(1, 1));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (const auto& layer : *layers) x = layer(x);
    return x;
  }
  etude::Units<torch::nn::Linear> layers{register_module("layers", etude::Units<torch::nn::Linear>())};
};

TEST_CASE("a model whose parameters two processes share makes the samples of a whole one") {
  if (toy::launches(2)) return;
  const auto options = [](std::int64_t batch) {
    auto args = arguments(2);
    args.per_device_train_batch_size = batch;
    torch::manual_seed(3);
    auto given = toy::options(args, 8, 4);
    given.model = std::make_shared<StackImpl>();
    return given;
  };
  const EvaluationSamplesCallback callback{
      .make = [](const etude::Evaluate& e) -> std::vector<etude::Sample> {
        const auto made = e.model.as<StackImpl>().forward(torch::rand({4, 1}));
        return {etude::text_sample("t", std::to_string(made.sum().item<double>()))};
      }};
  etude::Trainer<etude::ShardedDataParallel<3>, EvaluationSamplesCallback, Texts> sharded(options(2),
                                                                                          callback);
  sharded.train();
  const toy::Alone alone;
  etude::Trainer<EvaluationSamplesCallback, Texts> whole(options(4), callback);
  whole.train();
  const auto &ours = sharded.callback<Texts>().heard, &expected = whole.callback<Texts>().heard;
  REQUIRE(ours.size() == 2);
  REQUIRE(expected.size() == 2);
  CHECK(expected[0].second != expected[1].second);
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(std::stod(ours[i].second) == doctest::Approx(std::stod(expected[i].second)).epsilon(1e-4));
}

TEST_CASE("a callback without a function, or with numbers out of range, is refused") {
  etude::Trainer<EvaluationSamplesCallback> trainer(toy::options(arguments(1)));
  CHECK_THROWS_WITH_AS(
      trainer.train(),
      "EvaluationSamplesCallback: make is not set: must be a function that returns the samples",
      etude::ArgumentError);
  CHECK_THROWS_AS(trainer.evaluate(), etude::ArgumentError);
  etude::Trainer<EvaluationSamplesCallback> never(
      toy::options(arguments(1)), EvaluationSamplesCallback{.every_n_evaluations = 0, .make = constant});
  CHECK_THROWS_AS(never.train(), etude::ArgumentError);
}

TEST_CASE("a bad picture ends the training with an error that names it") {
  const auto make = [](const etude::Evaluate&) -> std::vector<etude::Sample> {
    return {etude::image_sample("cat", torch::zeros({7}))};
  };
  etude::Trainer<EvaluationSamplesCallback> trainer(toy::options(arguments(1)),
                                                    EvaluationSamplesCallback{.make = make});
  CHECK_THROWS_AS(trainer.train(), etude::DataError);
}

}  // namespace callbacks_evaluation_samples_test
