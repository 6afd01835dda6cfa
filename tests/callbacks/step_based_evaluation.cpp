#include "etude/callbacks/step_based_evaluation.hpp"

#include <doctest/doctest.h>

#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace callbacks_step_based_evaluation_test {

using Callback = etude::StepBasedEvaluationCallback;

/// Three modules in a row, the second of which the user keeps in evaluation mode.
struct FrozenMiddleImpl : torch::nn::Module {
  FrozenMiddleImpl() {
    first = register_module("first", torch::nn::Linear(1, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    last = register_module("last", torch::nn::Linear(4, 1));
  }
  torch::Tensor forward(torch::Tensor x) { return last(norm(first(x))); }
  torch::nn::Linear first = nullptr, last = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};
TORCH_MODULE(FrozenMiddle);

struct Modes {
  std::vector<std::string> of_steps = {};
  std::vector<std::int64_t> evaluated_at = {};

  void on(const etude::TrainBegin& e) { e.model.as<FrozenMiddleImpl>().norm->eval(); }
  void on(const etude::ForwardBegin& e) { of_steps.push_back(text(e.model.as<FrozenMiddleImpl>())); }
  void on(const etude::Evaluate& e) { evaluated_at.push_back(e.state.global_step); }

  static std::string text(const FrozenMiddleImpl& net) {
    std::string modes;
    for (const bool on :
         {net.is_training(), net.first->is_training(), net.norm->is_training(), net.last->is_training()})
      modes += on ? 'T' : 'F';
    return modes;
  }
};

TEST_CASE("it evaluates after every n-th step, and restores every submodule's mode") {
  auto args = toy::arguments();
  args.per_device_train_batch_size = 2;
  auto options = toy::options(args, 12);
  options.model = FrozenMiddle();
  etude::Trainer<Callback, Modes> trainer(options, Callback{.eval_every_n_steps = 2});
  trainer.train();
  CHECK(trainer.callback<Modes>().evaluated_at == std::vector<std::int64_t>{2, 4, 6});
  CHECK(trainer.callback<Modes>().of_steps == std::vector<std::string>(6, "TTFT"));
}

TEST_CASE(
    "steps count from the training's beginning, and a step that is due elsewhere too is evaluated once") {
  auto args = toy::arguments();
  args.num_train_epochs = 2;
  args.eval_strategy = etude::IntervalStrategy::steps;
  args.eval_steps = 2;
  auto options = toy::options(args, 3);
  options.model = FrozenMiddle();
  etude::Trainer<Callback, Modes> trainer(options, Callback{.eval_every_n_steps = 4});
  trainer.train();
  CHECK(trainer.callback<Modes>().evaluated_at == std::vector<std::int64_t>{2, 4, 6});
}

TEST_CASE("it evaluates after epochs and examples too, resumed or not") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.num_train_epochs = 3;
  toy::save_to(folder, args, 7);
  const auto evaluated_at = [&](const etude::Interval& interval, const etude::TrainOptions& how = {}) {
    auto options = toy::options(args, 4);
    options.model = FrozenMiddle();
    etude::Trainer<Modes, Callback> trainer(options, Callback{.eval_every_n_steps = interval});
    trainer.train(how);
    return trainer.template callback<Modes>().evaluated_at;
  };
  using Steps = std::vector<std::int64_t>;
  args.per_device_train_batch_size = 1;  // 4 steps per epoch
  CHECK(evaluated_at("1ep") == Steps{4, 8, 12});
  CHECK(evaluated_at("1.5ep") == Steps{6, 12});
  CHECK(evaluated_at("1h") == Steps{});
  CHECK(evaluated_at(0.5) == Steps{6, 12});
  CHECK(evaluated_at("5sp") == Steps{5, 10});
  CHECK(evaluated_at("5sp", {.resume_from_checkpoint = folder / "checkpoint-7"}) == Steps{10});
}

TEST_CASE("unsupported options and inputs are refused by name") {
  etude::Trainer<Callback> unset(toy::options(toy::arguments()));
  CHECK_THROWS_WITH_AS(unset.train(),
                       "eval_every_n_steps is 0: must be a whole number of steps >= 1, or a fraction of all "
                       "steps between 0 and 1",
                       etude::ArgumentError);
  etude::Trainer<Callback> never(toy::options(toy::arguments()), Callback{.eval_every_n_steps = "0ep"});
  CHECK_THROWS_WITH_AS(never.train(), "eval_every_n_steps is 0ep: must be positive and finite",
                       etude::ArgumentError);
  auto options = toy::options(toy::arguments());
  options.eval_dataset = {};
  etude::Trainer<Callback> without_data(options, Callback{.eval_every_n_steps = 1});
  CHECK_THROWS_WITH_AS(without_data.train(), "eval_dataset is not set: StepBasedEvaluationCallback needs it",
                       etude::ArgumentError);
}

}  // namespace callbacks_step_based_evaluation_test
