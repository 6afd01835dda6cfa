#include "etude/model/carried_state.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/full_run.hpp"
#include "common/quick_files.hpp"
#include "common/ranks.hpp"
#include "common/toy.hpp"
#include "etude/data/parallel_streams.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"
#include "etude/trainer.hpp"

/// A recurrent network learns a text of 106 tokens in 4 streams of 26: each epoch has 4 windows of 6 tokens
/// and a shorter last one.
namespace loop_carried_state_test {

constexpr std::int64_t streams = 4, window = 6, width = 5, vocabulary = 7;

torch::Tensor text() { return torch::arange(106).square().remainder(11).remainder(vocabulary); }

struct NetImpl : torch::nn::Module {
  explicit NetImpl(double drop) : dropout(register_module("dropout", torch::nn::Dropout(drop))) {}

  torch::Tensor forward(torch::Tensor tokens) {
    const auto x = embedding(tokens);
    const auto h = hidden->get("h", {1, tokens.size(0), width}, x.options());
    const auto c = hidden->get("c", {1, tokens.size(0), width}, x.options());
    began_with_zeros.push_back(torch::count_nonzero(h).item<std::int64_t>() == 0);
    auto [y, after] = lstm(x, std::tuple(h, c));
    hidden->set("h", std::get<0>(after));
    hidden->set("c", std::get<1>(after));
    return head(dropout(y));
  }

  torch::nn::Embedding embedding = register_module("embedding", torch::nn::Embedding(vocabulary, width));
  torch::nn::LSTM lstm =
      register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(width, width).batch_first(true)));
  torch::nn::Dropout dropout;
  torch::nn::Linear head = register_module("head", torch::nn::Linear(width, vocabulary));
  etude::CarriedState hidden = register_module("hidden", etude::CarriedState());
  std::vector<bool> began_with_zeros;
};
TORCH_MODULE(Net);

Net net(double drop = 0.2) {
  torch::manual_seed(3);
  return Net(drop);
}

torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& next) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), next.flatten());
}

etude::TrainerOptions problem(std::int64_t accumulated = 1) {
  auto args = toy::arguments();
  args.per_device_train_batch_size = args.per_device_eval_batch_size = streams;
  args.gradient_accumulation_steps = accumulated;
  args.num_train_epochs = 2;
  args.optim = etude::OptimizerNames::sgd;
  args.learning_rate = 0.5;
  args.max_grad_norm = 0.25;
  return {.model = net(),
          .args = args,
          .loss = loss_of,
          .train_dataset = etude::token_streams(text(), streams, window),
          .eval_dataset = etude::token_streams(text() + 0, streams, 8)};
}

struct Losses {
  std::vector<double> all = {};
  void on(const etude::BackwardEnd& e) { all.push_back(e.loss.item<double>()); }
};

using Trainer = etude::Trainer<toy::Quiet, Losses>;

/// The hand-written loop of PyTorch's example word_language_model.
std::vector<double> train_by_hand(Net& model, std::int64_t accumulated) {
  torch::manual_seed(static_cast<std::uint64_t>(etude::TrainingArguments().seed));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.5));
  const auto tokens = text().narrow(0, 0, 104).reshape({streams, 26});
  std::vector<double> losses;
  for (int epoch = 0; epoch < 2; ++epoch) {
    auto h = torch::zeros({1, streams, width}), c = torch::zeros({1, streams, width});
    for (std::int64_t i = 0; i < 5; ++i) {
      const auto length = i < 4 ? window : 1;
      const auto group = std::min(accumulated, 5 - i / accumulated * accumulated);
      const auto x = model->embedding(tokens.narrow(1, i * window, length));
      auto [y, after] = model->lstm(x, std::tuple(h.detach(), c.detach()));
      std::tie(h, c) = after;
      const auto loss =
          loss_of(model->head(model->dropout(y)), tokens.narrow(1, i * window + 1, length)) / group;
      loss.backward();
      losses.push_back(loss.item<double>());
      if ((i + 1) % accumulated != 0 && i < 4) continue;
      torch::nn::utils::clip_grad_norm_(model->parameters(), 0.25);
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  return losses;
}

TEST_CASE("truncated backpropagation through time gives the losses and weights of the loop by hand") {
  for (const std::int64_t accumulated : {1, 2}) {
    CAPTURE(accumulated);
    auto expected = net();
    const auto losses = train_by_hand(expected, accumulated);

    Trainer trainer(problem(accumulated));
    trainer.train();
    const auto& own = trainer.callback<Losses>().all;
    REQUIRE(own.size() == losses.size());
    for (std::size_t i = 0; i < own.size(); ++i) CHECK(own[i] == doctest::Approx(losses[i]).epsilon(1e-5));
    for (const auto& item : expected->named_parameters())
      for (const auto& [name, tensor] : trainer.model().named_parameters())
        if (name == item.key()) CHECK(torch::allclose(tensor, item.value(), 1e-5, 1e-6));
  }
}

TEST_CASE("state begins with zeros in each epoch and evaluation, and an evaluation leaves the training's") {
  Trainer plain(problem());
  plain.train();
  CHECK(plain.model().as<Net>().began_with_zeros ==
        std::vector{true, false, false, false, false, true, false, false, false, false});

  auto options = problem();
  options.args.eval_strategy = etude::IntervalStrategy::steps;
  options.args.eval_steps = 4;
  Trainer evaluated(options);
  evaluated.train();
  auto& model = evaluated.model().as<Net>();
  const std::vector train{true, false, false, false}, eval{true, false, false, false};
  std::vector<bool> expected = train;
  for (const auto& part : {eval, {false, true, false, false}, eval, {false, false}, eval})
    expected.insert(expected.end(), part.begin(), part.end());
  CHECK(model.began_with_zeros == expected);
  CHECK(toy::weights(evaluated) == toy::weights(plain));

  const auto before = model.hidden->tensors();
  const auto whole = evaluated.evaluate().at("eval_loss");
  CHECK(torch::equal(model.hidden->tensors().at("h"), before.at("h")));
  // The size of an evaluation's windows makes no difference, since its state is carried through them.
  CHECK(evaluated.evaluate({.eval_dataset = etude::token_streams(text(), streams, 25)}).at("eval_loss") ==
        doctest::Approx(
            evaluated.evaluate({.eval_dataset = etude::token_streams(text(), streams, 5)}).at("eval_loss")));
  CHECK(whole > 0);
}

TEST_CASE("files of weights and clones have nothing of carried state") {
  auto model = net();
  model->forward(text().narrow(0, 0, 8).reshape({2, 4}));
  CHECK(model->hidden->tensors().size() == 2);
  for (const auto& item : model->named_parameters()) CHECK(item.key().find("hidden") == std::string::npos);
  CHECK(model->named_buffers().is_empty());
  const auto copy = std::dynamic_pointer_cast<etude::CarriedStateImpl>(model->hidden->clone());
  CHECK(copy->tensors().empty());
}

TEST_CASE("batches with another number of rows are refused by name") {
  auto model = net();
  model->forward(torch::zeros({4, 2}, torch::kLong));
  const auto fault = toy::fault_of<etude::DataError>([&] {
    model->forward(torch::zeros({3, 2}, torch::kLong));
  });
  CHECK(toy::contains(fault,
                      "carried state 'h' is float32 [1, 4, 5], and the model asks for float32 [1, 3, 5]"));
}

TEST_CASE("arguments with which state can't be carried are refused by name") {
  const auto fault = [](auto change) {
    auto options = problem();
    change(options);
    Trainer trainer(options);
    return toy::fault_of<etude::ArgumentError>([&] { trainer.train(); });
  };
  CHECK(
      toy::contains(fault([](auto& options) { options.args.auto_microbatching = true; }),
                    "auto_microbatching is true: must be false with a model that carries state from batch to "
                    "batch (hidden)"));
  CHECK(toy::contains(fault([](auto& options) { options.args.auto_find_batch_size = true; }),
                      "auto_find_batch_size is true: must be false"));
  CHECK(toy::contains(
      fault([](auto& options) {
        options.train_dataset = {torch::zeros({8, 2}, torch::kLong), torch::zeros({8, 2}, torch::kLong)};
      }),
      "train_sampling_strategy is random: must be sequential"));
}

/// A program's own handler, which returns.
struct Handler {
  void (*before)(int) = ::signal(SIGTERM, [](int) {});
  ~Handler() { ::signal(SIGTERM, before); }
};

struct Ender {
  std::string event = {};
  int n = 0;
  bool throws_stop = false;

  template <std::derived_from<etude::Context> Event>
  void on(const Event& e) {
    if (etude::short_type_name<Event>() != event || --n != 0) return;
    if (throws_stop)
      e.control.should_training_stop = true;
    else
      ::raise(SIGTERM);
  }
};

using EndedTrainer = etude::Trainer<toy::Quiet, Ender>;

std::string resumed(const etude::TrainerOptions& options, Ender ender) {
  const toy::Folder folder;
  const auto run = [&](Ender end) {
    auto here = options;
    here.model = net();
    toy::save_to(folder, here.args, 100);
    here.file_system = std::make_shared<toy::QuickFiles>();
    EndedTrainer trainer(here, toy::Quiet{}, end);
    try {
      trainer.train({.resume_from_checkpoint = etude::if_any});
    } catch (const etude::Interrupted&) {
    }
    return toy::tensors(trainer);
  };
  const auto first = run(ender), second = run({});
  CHECK(first != second);
  return second;
}

TEST_CASE("a training that is resumed within an epoch goes on as if it had not been interrupted") {
  const Handler handler;
  for (const std::int64_t accumulated : {1, 2}) {
    const auto options = problem(accumulated);
    Trainer unbroken(options);
    unbroken.train();
    const auto expected = toy::tensors(unbroken);
    CHECK(resumed(options, {"StepEnd", 2}) == expected);
    if (accumulated == 1) continue;
    CHECK(resumed(options, {"SubstepEnd", 1}) == expected);  // in the middle of a group
    CHECK(resumed(options, {"SubstepEnd", 2}) == expected);
  }
}

TEST_CASE("a training that is resumed with another batch size carries nothing over") {
  const toy::Folder folder;
  auto options = problem();
  toy::save_to(folder, options.args, 2);
  options.args.num_train_epochs = 1;
  Trainer first(options);
  first.train();

  options.model = net();
  options.args.per_device_train_batch_size = options.args.per_device_eval_batch_size = 2;
  options.train_dataset = etude::token_streams(text(), 2, window);
  Trainer second(options);
  second.train({.resume_from_checkpoint = folder / "checkpoint-2"});
  CHECK(second.model().as<Net>().began_with_zeros.front());
  CHECK(second.model().as<Net>().hidden->tensors().at("h").size(1) == 2);
}

TEST_CASE("an optimizer that evaluates a batch repeatedly does so from the same state") {
  auto options = problem();
  options.args.optim = etude::OptimizerNames::lbfgs;
  options.args.max_steps = 1;
  Trainer trainer(options);
  trainer.train();
  const auto& began_with_zeros = trainer.model().as<Net>().began_with_zeros;
  CHECK(began_with_zeros.size() > 2);
  CHECK(began_with_zeros == std::vector<bool>(began_with_zeros.size(), true));
}

TEST_CASE("a group that is given up leaves the state of its beginning") {
  auto options = problem(2);
  EndedTrainer trainer(options, toy::Quiet{}, Ender{"SubstepEnd", 2, true});
  trainer.train();
  auto& model = trainer.model().as<Net>();
  auto other = problem(2);
  other.args.max_steps = 1;
  Trainer until_then(other);
  until_then.train();
  CHECK(
      torch::equal(model.hidden->tensors().at("c"), until_then.model().as<Net>().hidden->tensors().at("c")));
}

TEST_CASE("two processes carry the state of their own rows, also through a resume") {
  if (!toy::is_rank()) {
    const toy::Folder folder_of_all;
    toy::launches(2, {fmt::format("ETUDE_TEST_FOLDER={}", std::string(folder_of_all))});
    return;
  }
  using Both = etude::Trainer<etude::DistributedDataParallel, toy::Quiet, Ender>;
  const auto options = [](std::int64_t processes) {
    auto result = problem();
    result.args.per_device_train_batch_size = result.args.per_device_eval_batch_size = streams / processes;
    result.model = net(0);  // dropout would differ
    return result;
  };
  const std::string folder = std::getenv("ETUDE_TEST_FOLDER");
  auto saving = options(2);
  toy::save_to(folder, saving.args);
  Both together(saving);
  together.train();

  saving.model = net(0);
  Both again(saving);  // from the middle of an epoch
  again.train({.resume_from_checkpoint = folder + "/checkpoint-3"});
  CHECK(toy::weights(again) == toy::weights(together));

  const toy::Alone alone;
  Trainer whole(options(1));
  whole.train();
  const auto expected = whole.model().named_parameters(), found = together.model().named_parameters();
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(torch::allclose(found[i].second, expected[i].second, 1e-5, 1e-6));
}

}  // namespace loop_carried_state_test
