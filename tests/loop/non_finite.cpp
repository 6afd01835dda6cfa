#include "etude/loop/non_finite.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/folder.hpp"
#include "common/printed.hpp"
#include "common/ranks.hpp"
#include "common/toy.hpp"

namespace loop_non_finite_test {

using etude::OnNonFinite;

/// Divides a scale by each input, which makes inf where that is 0.
struct ReciprocalImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return scale / x; }
  torch::Tensor scale = register_parameter("scale", torch::full({1}, 0.5));
};
TORCH_MODULE(Reciprocal);

/// A norm with running means after a reciprocal. In training, it also draws random numbers, only to record
/// them.
struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    if (is_training()) drawn.push_back(torch::rand({16}));
    const auto hidden = inner->forward(x);
    return last(norm(bounded ? torch::atan(hidden) : hidden));
  }
  torch::nn::Sequential inner{register_module("inner", torch::nn::Sequential(Reciprocal()))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(1))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(1, 1))};
  bool bounded = true;
  std::vector<torch::Tensor> drawn;
};
TORCH_MODULE(Net);

constexpr std::int64_t batch_size = 4;

/// This many batches, with an input of 0 in the third row of each bad one. There, the loss is finite, since
/// atan is, but the gradient of the scale isn't.
std::pair<torch::Tensor, torch::Tensor> points(std::int64_t batches, const std::vector<std::int64_t>& bad) {
  const auto rows = torch::arange(1, batches * batch_size + 1).to(torch::kFloat).reshape({-1, 1});
  const auto x = rows / 8;
  for (const auto batch : bad) x[batch * batch_size + 2] = 0;
  return {x, torch::cos(rows)};
}

etude::TrainingArguments arguments(OnNonFinite mode) {
  auto args = toy::arguments();
  args.use_cpu = true;
  args.on_non_finite = mode;
  args.per_device_train_batch_size = batch_size;
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  args.weight_decay = 0.1;
  return args;
}

etude::TrainerOptions options(etude::TrainingArguments args, const torch::Tensor& x, const torch::Tensor& y) {
  torch::manual_seed(3);
  return {.model = Net(),
          .args = std::move(args),
          .loss = torch::nn::MSELoss(),
          .train_dataset = etude::Dataset(x, y)};
}

etude::TrainerOptions options(OnNonFinite mode, std::int64_t batches, const std::vector<std::int64_t>& bad) {
  const auto [x, y] = points(batches, bad);
  return options(arguments(mode), x, y);
}

using Tensors = std::vector<torch::Tensor>;

/// Weights, buffers, and the optimizer's state.
Tensors copies(const etude::Context& e) {
  Tensors all;
  for (const auto& [name, tensor] : e.model.state_dict()) all.push_back(tensor.detach().clone());
  for (const auto& [name, tensor] : e.optimizer->state()) all.push_back(tensor.clone());
  return all;
}

bool equal(const Tensors& a, const Tensors& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return torch::equal(x, y); });
}

struct Watch {
  Tensors last_step = {};
  int skipped = 0;
  void on(const etude::StepEnd& e) { last_step = copies(e); }
  void on(const etude::StepSkipped&) { ++skipped; }
};

TEST_CASE("stop: weights, buffers and moments stay as before the step, and the reason says where it begins") {
  etude::Trainer<Watch> trainer(options(OnNonFinite::stop, 6, {3}));
  const auto output = trainer.train();
  CHECK(output.global_step == 3);
  CHECK(
      output.stop_reason ==
      "the gradients of step 4 aren't finite: aten::div in inner.0 (Reciprocal) made inf in the forward "
      "pass, and the gradient of inner.0.scale isn't finite, in example 2 of the batch (train_dataset[14])");
  CHECK(equal(copies(trainer.context()), trainer.callback<Watch>().last_step));
  const auto& drawn = trainer.model().as<Net>().drawn;
  REQUIRE(drawn.size() == 5);  // four steps, of which the last ran twice with the same random numbers
  CHECK(torch::equal(drawn[3], drawn[4]));
  CHECK_FALSE(torch::equal(drawn[2], drawn[3]));
}

TEST_CASE("skip: the training ends as one without the batch") {
  const auto [x, y] = points(6, {3});
  etude::Trainer<Watch> skips(options(arguments(OnNonFinite::skip), x, y));
  const auto output = skips.train();
  CHECK(output.global_step == 5);
  CHECK(output.stop_reason.empty());
  CHECK(output.metrics.at("skipped_steps") == 1);
  CHECK(skips.callback<Watch>().skipped == 1);
  const auto without = [](const torch::Tensor& all) {
    return torch::cat({all.slice(0, 0, 12), all.slice(0, 16)});
  };
  etude::Trainer<> other(options(arguments(OnNonFinite::ignore), without(x), without(y)));
  other.train();
  CHECK(equal(copies(skips.context()), copies(other.context())));
}

TEST_CASE("restore: weights and moments return to an earlier step, and the data goes on") {
  const auto [x, y] = points(6, {3});
  etude::Trainer<> restores(options(arguments(OnNonFinite::restore), x, y));
  CHECK(restores.train().global_step == 5);
  etude::Trainer<> other(options(arguments(OnNonFinite::ignore), x.slice(0, 16), y.slice(0, 16)));
  other.train();
  CHECK(equal(copies(restores.context()), copies(other.context())));
}

TEST_CASE("a training that goes on failing stops, after three returns or fifty skipped updates") {
  etude::Trainer<> restores(options(OnNonFinite::restore, 9, {3, 4, 6, 7}));
  CHECK(restores.train().stop_reason.starts_with(
      "after 3 returns to the weights of step 0, the gradients of step 5 aren't finite"));
  std::vector<std::int64_t> all(60);
  std::iota(all.begin(), all.end(), 0);
  auto args = arguments(OnNonFinite::skip);
  args.max_steps = 2;
  const auto [x, y] = points(60, all);
  etude::Trainer<> skips(options(args, x, y));
  CHECK(skips.train().stop_reason.starts_with("the last 50 updates have been skipped, since the gradients"));
  CHECK(skips.state().global_step == 0);
}

/// Sets `is_bad` at the first StepEnd.
struct Spoils {
  bool* is_bad = nullptr;
  int throws_after = 0;  // skipped updates
  int skipped = 0;
  void on(const etude::StepEnd&) { *is_bad = true; }
  void on(const etude::StepSkipped&) {
    if (++skipped == throws_after) throw std::runtime_error("power failure");
  }
};

/// Options of a training on this many batches, whose loss is NaN while `is_bad`.
etude::TrainerOptions spoilt(etude::TrainingArguments args, std::int64_t batches, const bool& is_bad) {
  const auto [x, y] = points(batches, {});
  args.max_steps = 1000;
  auto result = options(std::move(args), x, y);
  result.loss = [&is_bad](const torch::Tensor& output, const torch::Tensor& target) {
    const auto loss = torch::mse_loss(output, target);
    return is_bad ? loss * std::numeric_limits<double>::quiet_NaN() : loss;
  };
  return result;
}

TEST_CASE("fifty skipped updates in a row end a training, however its epochs divide them") {
  for (const auto mode : {OnNonFinite::skip, OnNonFinite::restore})
    for (const std::int64_t updates : {1, 7, 49, 50, 51})
      for (const bool is_special : {false, true}) {
        CAPTURE(mode);
        CAPTURE(updates);
        CAPTURE(is_special);
        auto args = arguments(mode);
        if (is_special) {
          args.gradient_accumulation_steps = 2;
          args.eval_strategy = etude::IntervalStrategy::epoch;
          args.auto_microbatching = true;
        }
        bool is_bad = true;
        auto given = spoilt(args, updates * args.gradient_accumulation_steps, is_bad);
        given.eval_dataset = given.train_dataset;
        etude::Trainer<Spoils> trainer(std::move(given), Spoils{&is_bad});
        CHECK(trainer.train().stop_reason.starts_with("the last 50 updates have been skipped, since"));
        CHECK(trainer.callback<Spoils>().skipped == 49);
        CHECK(trainer.state().global_step == 0);
      }
}

TEST_CASE("only an update begins the count of skipped ones again") {
  bool is_bad = false;
  etude::Trainer<Spoils> later(spoilt(arguments(OnNonFinite::skip), 7, is_bad), Spoils{&is_bad});
  CHECK(later.train().stop_reason.starts_with("the last 50 updates have been skipped, since"));
  CHECK(later.state().global_step == 1);
  CHECK(later.callback<Spoils>().skipped == 49);

  // One good update in fifty.
  auto args = arguments(OnNonFinite::skip);
  const auto [x, y] = points(7, {});
  args.max_steps = 2;
  auto given = options(args, x, y);
  int number = 1;
  struct Counts {
    int* number = nullptr;
    void on(const etude::StepEnd&) { ++*number; }
    void on(const etude::StepSkipped&) { ++*number; }
  };
  given.loss = [&](const torch::Tensor& output, const torch::Tensor& target) {
    const auto loss = torch::mse_loss(output, target);
    return number % 50 == 0 ? loss : loss * std::numeric_limits<double>::quiet_NaN();
  };
  etude::Trainer<Counts> trainer(given, Counts{&number});
  const auto output = trainer.train();
  CHECK(output.stop_reason.empty());
  CHECK(output.global_step == 2);
  CHECK(output.metrics.at("skipped_steps") == 98);
}

TEST_CASE("a resumed training counts the updates that were skipped before") {
  const toy::Folder folder;
  auto args = arguments(OnNonFinite::skip);
  toy::save_to(folder, args, 1000);
  args.save_on_exception = true;
  bool is_bad = false;
  etude::Trainer<Spoils> first(spoilt(args, 7, is_bad), Spoils{&is_bad, 30});
  CHECK_THROWS_AS(first.train(), std::runtime_error);
  etude::Trainer<Spoils> second(spoilt(args, 7, is_bad), Spoils{&is_bad});
  const auto output = second.train({.resume_from_checkpoint = true});
  CHECK(output.stop_reason.starts_with("the last 50 updates have been skipped, since"));
  CHECK(output.global_step == 1);
  CHECK(second.callback<Spoils>().skipped == 19);
  // A resumed training gets the same batches again.
  etude::Trainer<Spoils> third(spoilt(args, 7, is_bad), Spoils{&is_bad});
  CHECK(third.train({.resume_from_checkpoint = true}).stop_reason.starts_with("the last 50 updates"));
  CHECK(third.callback<Spoils>().skipped == 0);
}

TEST_CASE("two processes end together after fifty skipped updates in short epochs") {
  if (toy::launches(2)) return;
  bool is_bad = toy::rank() == 1;
  etude::Trainer<etude::DistributedDataParallel, Spoils> trainer(
      spoilt(arguments(OnNonFinite::skip), 6, is_bad), Spoils{&is_bad});
  CHECK(trainer.train().stop_reason.starts_with("the last 50 updates have been skipped, since"));
  CHECK(trainer.callback<Spoils>().skipped == 49);
}

TEST_CASE("a loss that isn't finite, in the second batch of an accumulation group of a shuffled dataset") {
  auto args = arguments(OnNonFinite::stop);
  args.gradient_accumulation_steps = 2;
  args.train_sampling_strategy = etude::SamplingStrategy::random;
  const auto [x, y] = points(6, {4});
  auto given = options(args, x, y);
  given.model.as<Net>().bounded = false;
  etude::Trainer<> trainer(given);
  const auto reason = trainer.train().stop_reason;
  CAPTURE(reason);
  CHECK(reason.find("aten::div in inner.0 (Reciprocal) made inf in the forward pass, in example") !=
        std::string::npos);
  CHECK(reason.ends_with("of 2 (train_dataset[18])"));
}

TEST_CASE("a loss that isn't finite is seen although its gradients are finite") {
  const auto [x, y] = points(4, {});
  y[2 * batch_size] = 7;
  auto given = options(arguments(OnNonFinite::stop), x, y);
  given.loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    const bool is_marked = (target == 7).any().item<bool>();
    return torch::mse_loss(output, target) + (is_marked ? std::numeric_limits<double>::infinity() : 0);
  };
  etude::Trainer<> trainer(given);
  const auto output = trainer.train();
  CHECK(output.global_step == 2);
  CHECK(output.stop_reason.starts_with("a loss of step 3 isn't finite"));
}

TEST_CASE("a batch that isn't finite itself is named, and so is a weight") {
  const auto [x, y] = points(3, {});
  y[5] = std::numeric_limits<float>::quiet_NaN();
  etude::Trainer<> of_batch(options(arguments(OnNonFinite::stop), x, y));
  CHECK(of_batch.train().stop_reason ==
        "the gradients of step 2 aren't finite: the label 0 has such numbers already, in example 1 of the "
        "batch (train_dataset[5])");
  auto given = options(OnNonFinite::stop, 3, {});
  given.model.as<Net>().last->weight.data().fill_(std::numeric_limits<float>::infinity());
  etude::Trainer<> of_weight(given);
  CHECK(of_weight.train().stop_reason ==
        "the gradients of step 1 aren't finite: the parameter last.weight has such numbers already");
}

TEST_CASE("a skipped update is reported once, and by default nothing is looked at") {
  auto args = arguments(OnNonFinite::skip);
  args.log_level = etude::LogLevel::warning;
  const auto [x, y] = points(3, {1});
  etude::Trainer<> skips(options(args, x, y));
  const auto text = toy::printed([&] { skips.train(); }, STDERR_FILENO);
  CHECK(text.find("in example 2 of the batch (train_dataset[6]): its update is skipped\n") !=
        std::string::npos);
  etude::Trainer<> ignores(options(OnNonFinite::ignore, 3, {1}));
  CHECK(ignores.train().global_step == 3);
  CHECK(ignores.model().as<Net>().drawn.size() == 3);
}

TEST_CASE("two processes stop together, and say which of them has the batch") {
  if (toy::launches(2)) return;
  etude::Trainer<etude::DistributedDataParallel, Watch> trainer(options(OnNonFinite::stop, 6, {3}));
  const auto output = trainer.train();
  CHECK(output.global_step == 1);
  CHECK(
      output.stop_reason ==
      "the gradients of step 2 aren't finite: in rank 0, run again, its batches gave finite numbers; in rank "
      "1, aten::div in inner.0 (Reciprocal) made inf in the forward pass, and the gradient of inner.0.scale "
      "isn't finite, in example 2 of the batch (train_dataset[14])");
}

/// Returns the given rows once, and then nothing.
struct RowsOnce {
  torch::Tensor x, y;
  std::int64_t next_row = 0;
  std::optional<std::pair<torch::Tensor, torch::Tensor>> next() {
    if (next_row == x.size(0)) return std::nullopt;
    const auto row = next_row++;
    return std::pair(x[row], y[row]);
  }
  void reset() { next_row = 0; }
};

TEST_CASE("a process whose part is empty rejects and restores with the others") {
  if (toy::launches(2)) return;
  const auto [x, y] = points(6, {3});
  const auto rows = toy::rank() == 0 ? x.size(0) : 0;
  auto given = options(arguments(OnNonFinite::restore), x, y);
  given.args.max_steps = 5;
  given.train_dataset =
      etude::already_divided(etude::Dataset(RowsOnce{x.slice(0, 0, rows), y.slice(0, 0, rows)}));
  etude::Trainer<etude::DistributedDataParallel, Watch> trainer(given);
  CHECK(trainer.train().global_step == 5);
  CHECK(trainer.callback<Watch>().skipped == 1);
}

}  // namespace loop_non_finite_test
