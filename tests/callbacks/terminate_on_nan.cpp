#include "etude/callbacks/terminate_on_nan.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace callbacks_terminate_on_nan_test {

using Callback = etude::TerminateOnNaNCallback;

/// Records weights and the optimizer's state after the last step, and counts the batches.
struct Watch {
  std::vector<torch::Tensor> after_step = {};
  std::int64_t backward_passes = 0, predictions = 0;

  static std::vector<torch::Tensor> copies(const etude::Context& e) {
    std::vector<torch::Tensor> all;
    for (const auto& [name, tensor] : e.model.state_dict()) all.push_back(tensor.detach().clone());
    for (const auto& [name, tensor] : e.optimizer->state()) all.push_back(tensor.clone());
    return all;
  }
  void on(const etude::StepEnd& e) { after_step = copies(e); }
  void on(const etude::BackwardEnd&) { ++backward_passes; }
  void on(const etude::PredictionStep&) { ++predictions; }
};

/// Options of a training in which the loss of the `n`-th batch is `bad`, in training or in evaluation.
etude::TrainerOptions going_bad(etude::TrainingArguments args, double bad, std::int64_t n, bool in_training) {
  auto options = toy::options(std::move(args), 8, 4);
  options.loss = [bad, n, in_training, seen = std::int64_t{0}](const torch::Tensor& output,
                                                               const torch::Tensor& target) mutable {
    const auto loss = torch::mse_loss(output, target);
    return torch::GradMode::is_enabled() == in_training && ++seen == n ? loss * bad : loss;
  };
  return options;
}

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double inf = std::numeric_limits<double>::infinity();

TEST_CASE("training stops at a non-finite loss, before its batch reaches weights or moments") {
  for (const double bad : {nan, inf, -inf})
    for (const std::int64_t accumulation : {1, 2}) {
      CAPTURE(bad);
      CAPTURE(accumulation);
      auto args = toy::arguments();
      args.gradient_accumulation_steps = accumulation;
      args.weight_decay = 0.1;
      // The last micro-batch of the third step.
      etude::Trainer<Callback, Watch> trainer(going_bad(args, bad, 3 * accumulation, true));
      const auto output = trainer.train();
      CHECK(output.global_step == 2);
      CHECK(output.stop_reason == fmt::format("the loss of a batch of step 3 is {}", bad));
      CHECK(trainer.callback<Callback>().state.triggered);
      const auto& before = trainer.callback<Watch>().after_step;
      const auto after = Watch::copies(trainer.context());
      REQUIRE(after.size() == before.size());
      for (std::size_t i = 0; i < after.size(); ++i) CHECK(torch::equal(after[i], before[i]));
      CHECK_FALSE(trainer.model().parameters().front().grad().defined());
      if (!trainer.model().parameters().front().is_cuda())  // On the CPU, it stops before its backward pass.
        CHECK(trainer.callback<Watch>().backward_passes == 3 * accumulation - 1);
    }
}

TEST_CASE("a finite training isn't stopped") {
  etude::Trainer<Callback> trainer(toy::options(toy::arguments(), 4));
  CHECK(trainer.train().global_step == 4);
  CHECK_FALSE(trainer.callback<Callback>().state.triggered);
}

TEST_CASE("losses that an optimizer tries within its step are ignored until the next step") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.save_strategy = etude::SaveStrategy::steps;
  args.optim = etude::OptimizerNames::lbfgs;
  etude::Trainer<Callback> trainer(going_bad(args, nan, 2, true));
  CHECK(trainer.train().stop_reason == "the loss of a batch of step 2 is nan");
  CHECK(std::filesystem::exists(folder / "checkpoint-1"));
}

TEST_CASE("an evaluation stops the training at its bad batch") {
  auto args = toy::arguments();
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.num_train_epochs = 3;
  args.use_cpu = true;
  etude::Trainer<Callback, Watch> trainer(going_bad(args, nan, 2, false));
  const auto output = trainer.train();
  CHECK(output.global_step == 8);
  CHECK(output.stop_reason == "eval_loss is nan");
  CHECK(trainer.callback<Watch>().predictions == 1);
  CHECK(trainer.callback<Callback>().state.triggered);
}

TEST_CASE("one of several datasets is named in the reason") {
  auto args = toy::arguments();
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.num_train_epochs = 2;
  auto options = going_bad(args, inf, 3, false);
  options.eval_dataset = {{"near", toy::dataset(2)}, {"far", toy::dataset(2)}};
  CHECK(etude::Trainer<Callback>(options).train().stop_reason == "eval_far_loss is inf");
}

TEST_CASE("an evaluation outside of training throws, and the next run begins untriggered") {
  auto args = toy::arguments();
  etude::Trainer<Callback> trainer(going_bad(args, nan, 2, false));
  CHECK_THROWS_WITH_AS(trainer.evaluate(), "eval_loss is nan", etude::StopTraining);
  CHECK(trainer.callback<Callback>().state.triggered);
  trainer.evaluate();
  CHECK_FALSE(trainer.callback<Callback>().state.triggered);
}

TEST_CASE("a second training isn't stopped by the first one's trigger") {
  etude::Trainer<Callback> trainer(going_bad(toy::arguments(), nan, 1, true));
  CHECK(trainer.train().global_step == 0);
  CHECK(trainer.train().global_step == 8);
  CHECK_FALSE(trainer.callback<Callback>().state.triggered);
}

/// A trainer that overrides training_step, which may or may not report its loss.
struct Own : etude::TrainerBase<Own, Callback> {
  using TrainerBase::TrainerBase;
  bool reports = false;
  torch::Tensor training_step(etude::Batch& batch) {
    auto loss = compute_loss(batch).loss;
    if (reports) call_event(etude::BackwardBegin{context(), batch, {}, loss});
    loss.backward();
    return loss.detach();
  }
};

TEST_CASE("a trainer whose own step reports no loss is an error") {
  Own silent(going_bad(toy::arguments(), nan, 2, true));
  CHECK_THROWS_WITH_AS(
      silent.train(),
      "TerminateOnNaNCallback received no loss: training_step must raise BackwardBegin, as Etude's does",
      etude::Error);
  CHECK(silent.state().global_step == 1);
  Own reporting(going_bad(toy::arguments(), nan, 2, true));
  reporting.reports = true;
  CHECK(reporting.train().stop_reason == "the loss of a batch of step 2 is nan");
}

TEST_CASE("predictions aren't checked") {
  etude::Trainer<Callback> trainer(going_bad(toy::arguments(), nan, 1, false));
  const auto [x, y] = toy::points(2);
  trainer.predict({x, y});
  CHECK_FALSE(trainer.callback<Callback>().state.triggered);
}

TEST_CASE("a non-finite mean loss of an evaluation is found without that of a batch") {
  // Losses on a device aren't read batch by batch; a callback that replaces the mean simulates that.
  struct Spoils {
    void on(etude::Evaluate& e) { e.metrics["eval_loss"] = nan; }
  };
  auto args = toy::arguments();
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.num_train_epochs = 2;
  etude::Trainer<Spoils, Callback> trainer(toy::options(args, 2));
  CHECK(trainer.train().global_step == 2);
  CHECK(trainer.callback<Callback>().state.triggered);
}

}  // namespace callbacks_terminate_on_nan_test
