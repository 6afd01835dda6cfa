#include <doctest/doctest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/logged.hpp"
#include "common/printed.hpp"
#include "common/ranks.hpp"
#include "common/toy.hpp"
#include "etude/trainer.hpp"

// A batch that is divided (into micro-batches, among processes, or because memory ran out) has the same loss
// as the whole batch.

namespace loop_divided_batches_test {

namespace nn = torch::nn;

template <class... List>
using Quiet = etude::Trainer<etude::Without<etude::PrinterCallback>, List...>;

constexpr std::int64_t examples = 22, batch_size = 6;
constexpr double rate = 0.1;

torch::Tensor inputs() {
  return torch::sin(torch::arange(examples * 4).to(torch::kFloat).reshape({examples, 4}));
}

/// Classes from 0 to 2, half of them replaced by -100: a whole micro-batch, a process's whole part, and
/// single labels.
torch::Tensor gaps() {
  auto labels = torch::arange(examples).remainder(3);
  for (const std::int64_t i : {0, 1, 2, 4, 9, 10, 11, 13, 18, 19, 20}) labels[i] = -100;
  labels[21] = 2;
  return labels;
}

/// Scores [n, 3] from [n, 4]. It has room for `most` examples.
struct NetImpl : nn::Module {
  explicit NetImpl(std::int64_t most_examples) : most(most_examples) {}
  torch::Tensor forward(torch::Tensor x) {
    if (x.size(0) > most)
      throw c10::OutOfMemoryError({__func__, __FILE__, 0}, "DefaultCPUAllocator: can't allocate memory");
    return x.matmul(weight);
  }
  std::int64_t most;
  torch::Tensor weight =
      register_parameter("weight", torch::cos(torch::arange(12).to(torch::kFloat)).reshape({4, 3}));
};
TORCH_MODULE(Net);

struct Case {
  std::string name;
  etude::Loss loss;
  torch::Tensor labels;
};

std::vector<Case> cases() {
  const auto weights = torch::tensor({0.0, 0.3, 2.0});
  const auto entropy = [](const nn::CrossEntropyLossOptions& options) {
    return nn::CrossEntropyLoss(options);
  };
  const auto rows = torch::arange(examples * 3).to(torch::kFloat).reshape({examples, 3});
  const auto targets = torch::cos(rows), bits = rows.remainder(2);
  return {{"-100", nn::CrossEntropyLoss(), gaps()},
          {"class weights", entropy(nn::CrossEntropyLossOptions().weight(weights)),
           torch::arange(examples).remainder(3)},
          {"class weights and -100", entropy(nn::CrossEntropyLossOptions().weight(weights)), gaps()},
          {"one class", entropy(nn::CrossEntropyLossOptions().weight(weights)),
           (torch::arange(examples) / 3).to(torch::kLong).remainder(3)},
          {"ignore_index", entropy(nn::CrossEntropyLossOptions().ignore_index(1)),
           (torch::arange(examples) / 4).to(torch::kLong).remainder(3)},
          {"smoothing", entropy(nn::CrossEntropyLossOptions().label_smoothing(0.3)), gaps()},
          {"sum", entropy(nn::CrossEntropyLossOptions().reduction(torch::kSum)), gaps()},
          {"NLL", nn::NLLLoss(nn::NLLLossOptions().weight(weights)), gaps()},
          {"MSE", nn::MSELoss(), targets},
          {"MSE, sum", nn::MSELoss(torch::kSum), targets},
          {"BCE",
           nn::BCEWithLogitsLoss(nn::BCEWithLogitsLossOptions().pos_weight(torch::tensor({1.0, 3.0, 0.5}))),
           bits},
          {"KLDiv, batchmean", nn::KLDivLoss(nn::KLDivLossOptions().reduction(torch::kBatchMean)),
           torch::softmax(targets, 1)}};
}

/// Each batch of 6 is divided into 3 micro-batches of 2, into a part for each process, or into parts of 2
/// that go through the model in turn.
struct Division {
  std::int64_t micro_batch = batch_size;
  std::int64_t accumulation = 1;
  std::int64_t most = 1000;
};

etude::TrainerOptions options(const Case& of, const Division& division) {
  auto args = toy::arguments();
  args.per_device_train_batch_size = division.micro_batch;
  args.per_device_eval_batch_size = division.micro_batch;
  args.gradient_accumulation_steps = division.accumulation;
  args.auto_microbatching = division.most < batch_size;
  args.num_train_epochs = 2;
  args.learning_rate = rate;
  args.optim = etude::OptimizerNames::sgd;
  args.max_grad_norm = 0;
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  return {.model = Net(division.most),
          .args = args,
          .loss = of.loss,
          .train_dataset = {inputs(), of.labels},
          .eval_dataset = etude::Dataset(inputs(), of.labels)};
}

struct Trained {
  torch::Tensor weight;
  std::vector<double> losses;
};

/// A loop over whole batches without Etude's trainer.
Trained by_hand(const Case& of) {
  Net net(1000);
  Trained result;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (std::int64_t first = 0; first < examples; first += batch_size) {
      const auto rows = [&](const torch::Tensor& tensor) {
        return tensor.slice(0, first, std::min(first + batch_size, examples));
      };
      const auto loss = of.loss(net->forward(rows(inputs())), rows(of.labels));
      loss.backward();
      const torch::NoGradGuard no_grad;
      net->weight -= rate * net->weight.grad();
      net->weight.mutable_grad().zero_();
      result.losses.push_back(loss.item<double>());
    }
  result.weight = net->weight.detach();
  return result;
}

template <class Trainer>
void check_trains_as_by_hand(Trainer&& trainer, const Case& of) {
  trainer.train();
  const auto expected = by_hand(of);
  const auto weight = trainer.model().parameters()[0].detach();
  CHECK(torch::allclose(weight, expected.weight, 1e-5, 1e-5));
  const auto losses = toy::logged(trainer.state(), "loss");
  REQUIRE(losses.size() == expected.losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    CHECK(losses[i] == doctest::Approx(expected.losses[i]).epsilon(1e-4));
}

double loss_of_all(const Case& of, const torch::Tensor& weight) {
  return of.loss(inputs().matmul(weight), of.labels).item<double>();
}

TEST_CASE("accumulated micro-batches train as one batch, whatever the loss is divided by") {
  for (const auto& each : cases()) {
    CAPTURE(each.name);
    check_trains_as_by_hand(Quiet<>(options(each, {.micro_batch = 2, .accumulation = 3})), each);
  }
}

TEST_CASE("a batch that goes through the model in parts trains as a whole, whatever the loss is divided by") {
  for (const auto& each : cases()) {
    CAPTURE(each.name);
    check_trains_as_by_hand(Quiet<>(options(each, {.most = 2})), each);
  }
}

TEST_CASE("in two processes, parts of a batch train as one, whatever the loss is divided by") {
  if (toy::launches(2)) return;
  for (const auto& each : cases()) {
    CAPTURE(each.name);
    Quiet<etude::DistributedDataParallel> whole(options(each, {.micro_batch = 3}));
    check_trains_as_by_hand(whole, each);
    Quiet<etude::DistributedDataParallel> accumulated(options(each, {.micro_batch = 1, .accumulation = 3}));
    check_trains_as_by_hand(accumulated, each);
  }
}

TEST_CASE("an undivided batch trains bit for bit as by hand") {
  for (const auto& each : cases()) {
    CAPTURE(each.name);
    auto given = options(each, {});
    Net net(1000);
    given.model = net;
    given.optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(rate));
    Quiet<> trainer(given);
    trainer.train();
    Net other(1000);
    torch::optim::SGD sgd(other->parameters(), torch::optim::SGDOptions(rate));
    for (int epoch = 0; epoch < 2; ++epoch)
      for (std::int64_t first = 0; first < examples; first += batch_size) {
        const auto last = std::min(first + batch_size, examples);
        sgd.zero_grad();
        each.loss(other->forward(inputs().slice(0, first, last)), each.labels.slice(0, first, last))
            .backward();
        sgd.step();
      }
    CHECK(torch::equal(net->weight, other->weight));
  }
}

TEST_CASE("the loss of an evaluation is that of all its examples at once") {
  for (const auto& each : cases()) {
    CAPTURE(each.name);
    Quiet<> trainer(options(each, {.micro_batch = 2}));
    const auto weight = Net(1000)->weight;
    CHECK(trainer.evaluate().at("eval_loss") == doctest::Approx(loss_of_all(each, weight)).epsilon(1e-5));
  }
}

TEST_CASE("in two processes, the loss of an evaluation is that of all its examples at once") {
  if (toy::launches(2)) return;
  for (const auto& each : cases()) {
    CAPTURE(each.name);
    Quiet<etude::DistributedDataParallel> trainer(options(each, {.micro_batch = 3}));
    const auto weight = Net(1000)->weight;
    CHECK(trainer.evaluate().at("eval_loss") == doctest::Approx(loss_of_all(each, weight)).epsilon(1e-5));
  }
}

TEST_CASE("a process that has only labels of -100 to evaluate leaves the best model to be found") {
  if (toy::launches(2)) return;
  auto labels = torch::arange(examples).remainder(3);
  for (std::int64_t i = 0; i < examples; ++i)
    if (i % 6 >= 3 || i >= 18) labels[i] = -100;  // the parts of rank 1
  const Case of{"", nn::CrossEntropyLoss(), labels};
  auto given = options(of, {.micro_batch = 3});
  given.args.eval_strategy = etude::IntervalStrategy::epoch;
  given.args.metric_for_best_model = "eval_loss";
  Quiet<etude::DistributedDataParallel> trainer(given);
  trainer.train();
  REQUIRE(trainer.state().best_metric);
  CHECK(*trainer.state().best_metric ==
        doctest::Approx(loss_of_all(of, trainer.model().parameters()[0].detach())).epsilon(1e-5));
}

TEST_CASE("a set of examples without a label that counts has no loss that is a number") {
  const Case of{"", nn::CrossEntropyLoss(), torch::full({examples}, -100, torch::kLong)};
  Quiet<> trainer(options(of, {.micro_batch = 2}));
  CHECK(std::isnan(trainer.evaluate().at("eval_loss")));
}

TEST_CASE("an override of compute_loss that adds to a loss module's mean adds once to the whole's") {
  struct Penalised : etude::TrainerBase<Penalised, etude::NoDefaultCallbacks> {
    using TrainerBase::TrainerBase;
    etude::LossOutput compute_loss(const etude::Batch& batch, std::optional<double> items) {
      auto computed = TrainerBase::compute_loss(batch, items);
      computed.loss = computed.loss + model().parameters()[0].square().sum();
      return computed;
    }
  };
  const Case of{"", nn::CrossEntropyLoss(), gaps()};
  Penalised trainer(options(of, {.micro_batch = 2, .accumulation = 3}));
  trainer.train();
  Net net(1000);
  for (int epoch = 0; epoch < 2; ++epoch)
    for (std::int64_t first = 0; first < examples; first += batch_size) {
      const auto last = std::min(first + batch_size, examples);
      const auto loss =
          of.loss(net->forward(inputs().slice(0, first, last)), of.labels.slice(0, first, last));
      (loss + net->weight.square().sum()).backward();
      const torch::NoGradGuard no_grad;
      net->weight -= rate * net->weight.grad();
      net->weight.mutable_grad().zero_();
    }
  CHECK(torch::allclose(trainer.model().parameters()[0], net->weight, 1e-5, 1e-5));
}

TEST_CASE("the loss of an evaluation that counts items is weighted by their numbers") {
  auto given = options({"", nn::CrossEntropyLoss(), gaps()}, {.micro_batch = 2});
  given.loss = [](const torch::Tensor& output, const torch::Tensor& target, double items) {
    return nn::functional::cross_entropy(output, target,
                                         nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum)) /
           items;
  };
  Quiet<> trainer(given);
  const Case module{"", nn::CrossEntropyLoss(), gaps()};
  CHECK(trainer.evaluate().at("eval_loss") ==
        doctest::Approx(loss_of_all(module, Net(1000)->weight)).epsilon(1e-5));
}

std::string warnings_of(etude::TrainerOptions given) {
  given.args.log_level = etude::LogLevel::warning;
  return toy::printed([&] { etude::Trainer<etude::NoDefaultCallbacks>(given).train(); }, STDERR_FILENO);
}

TEST_CASE("a function as a loss is named once if parts of a batch are unequal") {
  const auto given = [](const torch::Tensor& labels, std::int64_t count, const Division& division) {
    auto result = options({"", nn::CrossEntropyLoss(), labels}, division);
    result.loss = [](const torch::Tensor& output, const torch::Tensor& target) {
      return torch::cross_entropy_loss(output, target);
    };
    result.train_dataset = {inputs().slice(0, 0, count), labels.slice(0, 0, count)};
    return result;
  };
  const std::string words = "nothing says what the function given as loss is divided by";
  const auto plain = torch::arange(examples).remainder(3);
  const Division divided{.micro_batch = 2, .accumulation = 3};
  const auto text = warnings_of(given(gaps(), 18, divided));
  CHECK(text.find(words) != text.npos);
  CHECK(text.find(words) == text.rfind(words));
  CHECK(warnings_of(given(plain, 18, divided)).find(words) == text.npos);
  CHECK(warnings_of(given(plain, 17, divided)).find(words) != text.npos);
  CHECK(warnings_of(given(gaps(), 18, {})).find(words) == text.npos);
  CHECK(warnings_of(options({"", nn::CrossEntropyLoss(), gaps()}, divided)).find("nothing says") ==
        text.npos);
}

TEST_CASE("in two processes, a function as a loss is named if only the second has unequal parts") {
  if (toy::launches(2)) return;
  auto labels = torch::arange(examples).remainder(3);
  labels[3] = -100;
  auto given = options({"", nn::CrossEntropyLoss(), labels}, {.micro_batch = 3});
  given.loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::cross_entropy_loss(output, target);
  };
  given.args.log_level = etude::LogLevel::warning;
  const auto text = toy::printed(
      [&] { etude::Trainer<etude::DistributedDataParallel, etude::NoDefaultCallbacks>(given).train(); },
      STDERR_FILENO);
  CHECK((text.find("nothing says what the function given as loss") != text.npos) == (toy::rank() == 0));
}

}  // namespace loop_divided_batches_test
