#include "etude/trainer.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

#include "common/fault_of.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/dispatch/filters.hpp"

namespace trainer_test {

using toy::Recorder;

struct Counter {
  int steps = 0;
  void on(const etude::StepEnd&) { ++steps; }
};
struct Named {
  explicit Named(std::string name_) : name(std::move(name_)) {}
  std::string name;
  void on(const etude::TrainBegin&) {}
};

TEST_CASE("callbacks are deduced, found by their type, and default-constructed if missing") {
  etude::Trainer deduced(toy::options(toy::arguments()), Counter{}, Named("n"));
  deduced.train();
  CHECK(deduced.callback<Counter>().steps == 2);
  CHECK(deduced.callback<Named>().name == "n");
  etude::Trainer<Counter, Named> named(toy::options(toy::arguments()), Named("only this one"));
  named.train();
  CHECK(named.callback<Counter>().steps == 2);
}

TEST_CASE("a callback that would be sliced to its base is refused") {
  struct Counts {
    int heard = 0;
    virtual ~Counts() = default;
    virtual void on(const etude::StepEnd&) { ++heard; }
  };
  struct CountsTwice : Counts {
    void on(const etude::StepEnd&) override { heard += 2; }
  };
  CountsTwice twice;
  Counts& base = twice;
  const char* refusal = "Counts is only a base of the given callback: pass the callback as its actual class";
  CHECK_THROWS_WITH_AS(etude::Trainer<Counts>(toy::options(toy::arguments()), base), refusal,
                       etude::ArgumentError);
  CHECK_THROWS_WITH_AS(etude::Trainer(toy::options(toy::arguments()), base), refusal, etude::ArgumentError);
  etude::Trainer trainer(toy::options(toy::arguments()), twice);
  trainer.train();
  CHECK(trainer.callback<CountsTwice>().heard == 4);
}

struct Twice {
  static constexpr bool allows_duplicates = true;
  int id = 0;
  std::vector<int>* heard = nullptr;
  void on(const etude::TrainBegin&) { heard->push_back(id); }
};

TEST_CASE("callbacks of one type that may be listed twice are passed in the order of the list") {
  std::vector<int> heard;
  etude::Trainer<Twice, Counter, Twice> trainer(toy::options(toy::arguments()), Twice{1, &heard},
                                                Twice{2, &heard});
  trainer.train();
  CHECK(heard == std::vector<int>{1, 2});
}

struct MyFlow : etude::DefaultFlowCallback {};

TEST_CASE("callbacks in the list replace defaults of their type or their base") {
  using Plain = etude::TrainerComposition<Counter>::callbacks_list;
  CHECK(std::same_as<Plain, etude::callbacks<etude::DefaultFlowCallback, Counter, etude::ProgressCallback,
                                             etude::PrinterCallback>>);
  using Own = etude::TrainerComposition<etude::RuntimeCallbacks, MyFlow, etude::PrinterCallback,
                                        Counter>::callbacks_list;
  CHECK(std::same_as<Own, etude::callbacks<MyFlow, etude::PrinterCallback, Counter, etude::ProgressCallback,
                                           etude::RuntimeCallbacks>>);
  using None = etude::TrainerComposition<etude::NoDefaultCallbacks, Counter>::callbacks_list;
  CHECK(std::same_as<None, etude::callbacks<Counter>>);
}

struct Last {
  static constexpr bool runs_last = true;
  void on(const etude::StepEnd& e);
};

TEST_CASE("Without leaves default callbacks out, and callbacks that run last follow all others") {
  using Quiet = etude::TrainerComposition<etude::Without<etude::PrinterCallback>, Counter>::callbacks_list;
  CHECK(std::same_as<Quiet, etude::callbacks<etude::DefaultFlowCallback, Counter, etude::ProgressCallback>>);
  using Silent = etude::TrainerComposition<
      Last, etude::RuntimeCallbacks, Counter,
      etude::Without<etude::PrinterCallback, etude::ProgressCallback>>::callbacks_list;
  CHECK(std::same_as<Silent,
                     etude::callbacks<etude::DefaultFlowCallback, Counter, etude::RuntimeCallbacks, Last>>);
}

TEST_CASE("without callbacks a trainer trains to its last step and prints nothing") {
  etude::Trainer<etude::NoDefaultCallbacks> trainer(toy::options(toy::arguments(), 3));
  CHECK(trainer.train().global_step == 3);
}

struct VerifyTrainBatch {
  const torch::Tensor& xb;
  const torch::Tensor& yb;
};
struct VerifyBatch {
  int verified = 0;
  void on(const VerifyTrainBatch& e) {
    TORCH_CHECK(e.xb.size(0) == e.yb.size(0));
    ++verified;
  }
};

TEST_CASE("a custom event reaches static and run-time callbacks") {
  etude::Trainer<VerifyBatch, etude::RuntimeCallbacks> trainer(toy::options(toy::arguments()));
  int heard = 0;
  trainer.add_callback(etude::on<VerifyTrainBatch>().call([&](const VerifyTrainBatch&) { ++heard; }));
  const auto x = torch::zeros({2}), y = torch::zeros({2}), z = torch::zeros({3});
  trainer.call_event(VerifyTrainBatch{x, y});
  CHECK(trainer.callback<VerifyBatch>().verified == 1);
  CHECK(heard == 1);
  CHECK_THROWS_AS(trainer.call_event(VerifyTrainBatch{x, z}), c10::Error);
}

struct Verifying : etude::TrainerBase<Verifying, VerifyBatch, etude::Raises<VerifyTrainBatch>> {
  using TrainerBase::TrainerBase;
  torch::Tensor training_step(etude::Batch& batch) {
    call_event(VerifyTrainBatch{batch.inputs, batch.labels});
    return TrainerBase::training_step(batch);
  }
};

TEST_CASE("an overridden training step raises a custom event and calls the base's") {
  Verifying trainer(toy::options(toy::arguments(), 3));
  trainer.train();
  CHECK(trainer.callback<VerifyBatch>().verified == 3);
  CHECK(trainer.model().as<toy::LineImpl>().bias.item<double>() != 0);
}

struct Halved {
  double value;
};
struct ReadsHalved {
  double seen = 0;
  void on(const Halved& e) { seen = e.value; }
};
struct Halving : etude::TrainerBase<Halving, ReadsHalved> {
  using TrainerBase::TrainerBase;
  void on(Halved& e) { e.value /= 2; }
};

TEST_CASE("a custom trainer handles custom events before its callbacks, and may change them") {
  Halving trainer(toy::options(toy::arguments()));
  trainer.call_event(Halved{6});
  CHECK(trainer.callback<ReadsHalved>().seen == 3);
  Halved own{10};
  trainer.call_event(own);
  CHECK(own.value == 5);
}

struct CountsLogs : etude::DefaultFlowCallback {
  using DefaultFlowCallback::on;
  int logs = 0;
  void on(const etude::Log&) { ++logs; }
};

TEST_CASE("a callback that derives from a default replaces it, with the handlers of both") {
  auto args = toy::arguments();
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  etude::Trainer<CountsLogs> trainer(toy::options(args, 2));
  trainer.train();
  CHECK(trainer.callback<CountsLogs>().logs == 3);  // two steps and the summary
  CHECK(trainer.describe().find("DefaultFlowCallback") == std::string::npos);
}

struct AddsMetric {
  void on(etude::EvaluationRunEnd& e) { e.metrics["eval_doubled"] = e.metrics.at("eval_loss") * 2; }
};

TEST_CASE("the user gets the metrics as a callback changed them at the end of an evaluation") {
  etude::Trainer<etude::NoDefaultCallbacks, AddsMetric> trainer(toy::options(toy::arguments()));
  const auto metrics = trainer.evaluate();
  CHECK(metrics.at("eval_doubled") == 2 * metrics.at("eval_loss"));
}

struct Hears {
  std::vector<std::string>* heard = nullptr;
  void on(const etude::TrainBegin&) { heard->emplace_back("callback: TrainBegin"); }
  void on(const etude::TrainEnd&) { heard->emplace_back("callback: TrainEnd"); }
};
struct WithHooks : etude::TrainerBase<WithHooks, Hears> {
  using TrainerBase::TrainerBase;
  std::vector<std::string>* heard = nullptr;
  void on(const etude::TrainBegin& e) {
    CHECK(e.optimizer != nullptr);
    heard->emplace_back("hook: TrainBegin");
  }
  void on(etude::Log& e) { e.logs["hooked"] = 1; }
  void on(const etude::TrainEnd&) {
    heard->emplace_back("hook: TrainEnd");
    throw std::runtime_error("in a hook");
  }
};

TEST_CASE("a custom trainer handles events before its callbacks, which get every event despite its errors") {
  std::vector<std::string> heard;
  WithHooks trainer(toy::options(toy::arguments()), Hears{&heard});
  trainer.heard = &heard;
  CHECK_THROWS_WITH(trainer.train(), "in a hook");
  CHECK(heard == std::vector<std::string>{"hook: TrainBegin", "callback: TrainBegin", "hook: TrainEnd",
                                          "callback: TrainEnd"});
  CHECK(trainer.state().log_history.back().contains("hooked"));
}

struct SeesGradients : etude::TrainerBase<SeesGradients, etude::NoDefaultCallbacks> {
  using TrainerBase::TrainerBase;
  double norm = 0;
  void on(const etude::PreOptimizerStep& e) { norm = e.optimizer->grad_norm().item<double>(); }
};

TEST_CASE("gradients are clipped before a trainer that handles them itself") {
  auto args = toy::arguments();
  args.max_grad_norm = 0.125;
  SeesGradients trainer(toy::options(args, 1));
  trainer.train();
  CHECK(trainer.norm == doctest::Approx(0.125));  // 2 before clipping: the slope of (y - 1)^2 at y = 0
}

struct AsksTheTrainer {
  double loss = 0, evaluated = 0;
  std::int64_t steps_planned = 0;
  void on(const etude::BatchFetched& e) {
    loss = e.trainer.compute_loss(e.batch).loss.item<double>();
    steps_planned = e.trainer.run_config().max_num_train_steps;
  }
  void on(const etude::StepEnd& e) {
    evaluated = e.trainer.evaluate({.metric_key_prefix = "now"}).at("now_loss");
  }
};

TEST_CASE("a callback has the trainer, whatever its type, compute a loss and evaluate") {
  etude::Trainer<etude::NoDefaultCallbacks, AsksTheTrainer> trainer(toy::options(toy::arguments(), 1));
  trainer.train();
  const auto& asked = trainer.callback<AsksTheTrainer>();
  CHECK(asked.loss == doctest::Approx(1));  // (2 * 0 + 1 - 0)^2
  CHECK(asked.steps_planned == 1);
  CHECK(asked.evaluated == doctest::Approx(trainer.evaluate()["eval_loss"]));
  CHECK_FALSE(trainer.state().best_metric);
}

struct Overriding : etude::TrainerBase<Overriding> {
  using TrainerBase::TrainerBase;
  std::vector<std::string> called;

  etude::LossOutput compute_loss(const etude::Batch& batch, std::optional<double> items) {
    called.emplace_back("compute_loss");
    auto result = TrainerBase::compute_loss(batch, items);
    result.loss = 2 * result.loss;
    return result;
  }
  std::unique_ptr<etude::Optimizer> create_optimizer() {
    called.emplace_back("create_optimizer");
    return TrainerBase::create_optimizer();
  }
  std::unique_ptr<etude::LRScheduler> create_scheduler(std::int64_t steps) {
    called.emplace_back("create_scheduler");
    return TrainerBase::create_scheduler(steps);
  }
  void log(etude::Metrics& logs) {
    called.emplace_back("log");
    logs["mine"] = 5;
    TrainerBase::log(logs);
  }
  etude::PredictionStepOutput prediction_step(const etude::Batch& batch,
                                              const std::vector<std::string>& ignore_keys) {
    called.emplace_back("prediction_step");
    return TrainerBase::prediction_step(batch, ignore_keys);
  }
};

TEST_CASE("methods are overridden statically and can call the base's") {
  auto args = toy::arguments();
  args.eval_strategy = etude::IntervalStrategy::epoch;
  Overriding trainer(toy::options(args, 1, 1));
  const auto output = trainer.train();
  CHECK(trainer.called == std::vector<std::string>{"create_optimizer", "create_scheduler", "compute_loss",
                                                   "prediction_step", "compute_loss", "log", "log"});
  CHECK(output.training_loss == doctest::Approx(2));
  CHECK(trainer.state().log_history.back().at("mine") == 5);
}

/// Evaluates as `how` says, and counts the calls.
struct Evaluates : etude::TrainerBase<Evaluates, toy::Recorder> {
  using TrainerBase::TrainerBase;
  std::function<etude::Metrics()> how = {};
  int evaluations = 0, states = 0;

  etude::Metrics evaluate(const etude::EvaluateOptions& options) {
    ++evaluations;
    return how ? how() : TrainerBase::evaluate(options);
  }
  void save_state() {
    ++states;
    TrainerBase::save_state();
  }
  // An overload next to the one that is called.
  using TrainerBase::compute_loss;
  etude::LossOutput compute_loss(const torch::Tensor& x) { return compute_loss(etude::make_batch(x, {})); }
};

TEST_CASE("train() calls a custom trainer's evaluate(), and picks the best model by its result") {
  const toy::Folder folder;
  auto args = toy::arguments();
  toy::save_to(folder, args, 2);
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.num_train_epochs = 3;
  args.metric_for_best_model = "score";
  args.greater_is_better = true;
  Evaluates trainer(toy::options(args));
  trainer.how = [&] { return etude::Metrics{{"eval_score", trainer.evaluations == 2 ? 1.0 : 0.5}}; };
  trainer.train();
  CHECK(trainer.evaluations == 3);
  CHECK(trainer.state().best_metric == 1.0);
  CHECK(trainer.state().best_global_step == 4);
  CHECK(trainer.states == 1);
}

TEST_CASE("an overridden evaluate() that calls the base's is the training's evaluation") {
  auto args = toy::arguments();
  args.eval_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<toy::Recorder> plain(toy::options(args));
  plain.train();
  struct Own : etude::TrainerBase<Own, toy::Recorder> {
    using TrainerBase::TrainerBase;
    etude::Metrics evaluate(const etude::EvaluateOptions& options = {}) {
      return TrainerBase::evaluate(options);
    }
  } own(toy::options(args));
  own.train();
  CHECK(own.callback<toy::Recorder>().names() == plain.callback<toy::Recorder>().names());
  own.evaluate();
  CHECK(own.callback<toy::Recorder>().heard.back() == "EvaluationRunEnd");
}

TEST_CASE("an overridden evaluate() that throws leaves nothing behind for the next") {
  auto args = toy::arguments();
  args.eval_strategy = etude::IntervalStrategy::epoch;
  Evaluates trainer(toy::options(args));
  trainer.how = []() -> etude::Metrics { throw std::runtime_error("no metrics today"); };
  CHECK_THROWS_WITH(trainer.train(), "no metrics today");
  trainer.how = nullptr;
  CHECK(trainer.evaluate({}).contains("eval_loss"));
  CHECK(trainer.callback<toy::Recorder>().heard.back() == "EvaluationRunEnd");
}

/// Returns null from the method that `nothing` names.
struct GivesNull : etude::TrainerBase<GivesNull> {
  using TrainerBase::TrainerBase;
  std::string nothing;
  std::unique_ptr<etude::Optimizer> create_optimizer() {
    return nothing == "create_optimizer" ? nullptr : TrainerBase::create_optimizer();
  }
  std::unique_ptr<etude::LRScheduler> create_scheduler(std::int64_t steps) {
    return nothing == "create_scheduler" ? nullptr : TrainerBase::create_scheduler(steps);
  }
  std::unique_ptr<etude::DataLoader> get_train_dataloader() {
    return nothing == "get_train_dataloader" ? nullptr : TrainerBase::get_train_dataloader();
  }
  std::unique_ptr<etude::DataLoader> get_eval_dataloader(const etude::Dataset& dataset) {
    return nothing == "get_eval_dataloader" ? nullptr : TrainerBase::get_eval_dataloader(dataset);
  }
};

TEST_CASE("an error names an overridden method that returns null") {
  auto args = toy::arguments();
  args.eval_strategy = etude::IntervalStrategy::epoch;
  for (const std::string method :
       {"create_optimizer", "create_scheduler", "get_train_dataloader", "get_eval_dataloader"}) {
    GivesNull trainer(toy::options(args));
    trainer.nothing = method;
    CHECK_THROWS_WITH_AS(trainer.train(), (method + " gave a null pointer").c_str(), etude::ArgumentError);
  }
}

/// Has a training step that may or may not call `backward`.
struct OwnStep : etude::TrainerBase<OwnStep> {
  using TrainerBase::TrainerBase;
  bool calls_backward = false;
  double share_after_first = 1;
  torch::Tensor training_step(etude::Batch& batch) {
    auto loss = TrainerBase::compute_loss(batch).loss;
    if (state().global_step > 0) loss = loss * share_after_first;
    if (calls_backward) loss.backward();
    return loss;
  }
};

TEST_CASE("an overridden training step without a backward pass is refused, and one with it trains") {
  OwnStep without(toy::options(toy::arguments()));
  CHECK_THROWS_WITH_AS(without.train(), doctest::Contains("without calling backward on it"),
                       etude::DataError);
  OwnStep with(toy::options(toy::arguments()));
  with.calls_backward = true;
  CHECK(with.train().global_step == 2);
  CHECK(with.model().as<toy::LineImpl>().bias.item<double>() != 0);
}

TEST_CASE("gradients of zero don't count as missing") {
  OwnStep zero(toy::options(toy::arguments()));
  zero.calls_backward = true;
  zero.share_after_first = 0;
  CHECK(zero.train().global_step == 2);
}

TEST_CASE("the option compute_loss computes the loss from the whole batch") {
  auto options = toy::options(toy::arguments(), 1);
  options.loss = {};
  options.compute_loss = [](etude::Model& model, const etude::Batch& batch, std::optional<double>) {
    auto outputs = model.forward(batch.inputs);
    return etude::LossOutput{3 * torch::mse_loss(outputs, batch.labels), outputs};
  };
  CHECK(etude::Trainer(options).train().training_loss == doctest::Approx(3));
}

TEST_CASE("run-time callbacks can be added, removed and popped") {
  etude::Trainer<etude::RuntimeCallbacks> trainer(toy::options(toy::arguments(), 2));
  const auto handle = trainer.add_callback(Counter{});
  trainer.train();
  CHECK(trainer.callback<Counter>().steps == 2);
  CHECK(trainer.pop_callback<Counter>().steps == 2);
  CHECK_THROWS_AS(trainer.remove_callback(handle), etude::ArgumentError);
  const auto second = trainer.add_callback(Counter{7});
  CHECK(trainer.pop_callback<Counter>(second).steps == 7);
  trainer.add_callback(Counter{});
  trainer.remove_callback<Counter>();
  CHECK_THROWS_AS(trainer.pop_callback<Counter>(), etude::ArgumentError);
}

struct Scale {
  void on(etude::BackwardBegin& e) { e.loss = e.loss * 2; }
};

struct TakesLossAway {
  void on(etude::BackwardBegin& e) { e.loss = torch::Tensor(); }
};
struct DetachesLoss {
  void on(etude::BackwardBegin& e) { e.loss = e.loss.detach(); }
};

TEST_CASE("the error about an invalid loss names the callback that wrote it, static or run-time") {
  const auto options = toy::options(toy::arguments());
  etude::Trainer<Counter, TakesLossAway> without(options);
  CHECK_THROWS_WITH_AS(without.train(),
                       "TakesLossAway has changed the loss in BackwardBegin: the loss is an undefined "
                       "tensor: must be one element",
                       etude::DataError);
  etude::Trainer<Scale, etude::RuntimeCallbacks> detached(options);
  detached.add_callback(DetachesLoss());
  CHECK_THROWS_WITH_AS(detached.train(),
                       "Scale or DetachesLoss has changed the loss in BackwardBegin: the loss depends on no "
                       "parameter that is trained: all are frozen, or it was detached",
                       etude::DataError);
}

TEST_CASE("describe lists each event with its callbacks in order, and marks writers") {
  etude::Trainer<etude::NoDefaultCallbacks, Counter, Scale, etude::RuntimeCallbacks> trainer(
      toy::options(toy::arguments()));
  trainer.add_callback(Named("n"));
  trainer.add_callback(etude::on<etude::StepEnd>().call([](const etude::StepEnd&) {}));
  const auto text = trainer.describe();
  CHECK(text.find("TrainBegin           Named\n") != text.npos);
  CHECK(text.find("BackwardBegin        Scale (writes)\n") != text.npos);
  CHECK(text.find("StepEnd              Counter, InlineCallback") != text.npos);
  CHECK(text.find("EpochEnd") == text.npos);
}

TEST_CASE("a writer changes the loss that is differentiated") {
  auto args = toy::arguments();
  args.optim = etude::OptimizerNames::sgd;
  args.max_grad_norm = 0;
  etude::Trainer<Scale> scaled(toy::options(args, 1));
  scaled.train();
  etude::Trainer<> plain(toy::options(args, 1));
  plain.train();
  const auto bias = [](auto& trainer) {
    return trainer.model().template as<toy::LineImpl>().bias.template item<double>();
  };
  CHECK(bias(scaled) == doctest::Approx(2 * bias(plain)));
}

struct LogSomething {
  void on(const etude::StepEnd& e) {
    e.log("step", static_cast<double>(e.state.global_step));
    e.log("ten", torch::full({}, 10.0));
  }
  void on(const etude::PredictionStep& e) { e.log("eval_batches", 1); }
};
struct AddToLogs {
  void on(etude::Log& e) { e.logs["added"] = 1; }
};

TEST_CASE(
    "the next log has the means of values that callbacks log; the history keeps those that writers add") {
  auto args = toy::arguments();
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 2;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<LogSomething, AddToLogs> trainer(toy::options(args, 4));
  trainer.train();
  const auto& history = trainer.state().log_history;
  CHECK(history.at(0).at("step") == 2);  // the step of the line, not the mean that was logged under its name
  CHECK(history.at(0).at("ten") == 10.0);
  CHECK(history.at(1).at("added") == 1.0);
  CHECK(history.at(2).at("eval_batches") == 1.0);
  CHECK_FALSE(history.at(2).contains("ten"));
}

struct Vocabulary {
  std::string words = "a b c";
  void save(const std::filesystem::path& directory) const { std::ofstream(directory / "words.txt") << words; }
};
struct LooksItUp {
  std::string seen = {};
  void on(const etude::TrainBegin& e) { seen = e.processing_class->as<Vocabulary>().words; }
};

TEST_CASE("the processing class is reachable from events and stored with every checkpoint") {
  const toy::Folder folder;
  auto options = toy::options(toy::arguments());
  options.args.output_dir = folder;
  options.args.save_strategy = etude::SaveStrategy::epoch;
  options.processing_class = Vocabulary{};
  etude::Trainer<LooksItUp> trainer(options);
  trainer.train();
  CHECK(trainer.callback<LooksItUp>().seen == "a b c");
  CHECK(std::filesystem::exists(folder / "checkpoint-2/words.txt"));
  CHECK_THROWS_AS(options.processing_class.as<int>(), etude::ArgumentError);
}

TEST_CASE("a TorchScript module is trained like any other") {
  torch::jit::Module module("Script");
  module.register_parameter("weight", torch::zeros({1}, torch::requires_grad()), false);
  module.define("def forward(self, x):\n    return x * self.weight\n");
  auto options = toy::options(toy::arguments(), 4);
  options.model = module;
  etude::Trainer trainer(options);
  trainer.train();
  CHECK(module.attr("weight").toTensor().item<double>() > 0);
}

TEST_CASE("all errors in the options are reported at once") {
  etude::TrainerOptions options;
  options.args.learning_rate = -1;
  options.args.gradient_accumulation_steps = 0;
  options.args.eval_strategy = etude::IntervalStrategy::epoch;
  try {
    etude::Trainer trainer(options);
    FAIL("nothing was thrown");
  } catch (const etude::ArgumentError& error) {
    const std::string what = error.what();
    CHECK(what.find("learning_rate is -1") != what.npos);
    CHECK(what.find("gradient_accumulation_steps is 0") != what.npos);
    CHECK(what.find("model is not set") != what.npos);
    CHECK(what.find("eval_strategy is epoch: must be no, or .eval_dataset must be set") != what.npos);
  }
}

/// train()'s error for options that `spoil` changed.
template <class Exception, class Spoil>
std::string refusal(Spoil spoil) {
  auto options = toy::options(toy::arguments());
  spoil(options);
  return toy::fault_of<Exception>([&] { etude::Trainer(options).train(); });
}

TEST_CASE("the error about bad input says what is allowed") {
  using etude::ArgumentError, etude::DataError, etude::MetricError;
  CHECK(refusal<DataError>([](auto& o) {
          o.args.per_device_train_batch_size = 2;
          o.loss = torch::nn::MSELoss(torch::nn::MSELossOptions(torch::kNone));
        }).find("the loss is float32 [2, 1]: must be one element") != std::string::npos);
  CHECK(refusal<DataError>([](auto& o) {
          o.train_dataset = {torch::zeros({4, 1}), torch::zeros({4})};
          o.args.per_device_train_batch_size = 4;
        }).find("must have the same shape") != std::string::npos);
  CHECK_THROWS_AS(etude::Dataset(torch::zeros({4, 1}), torch::zeros({3, 1})), DataError);
  CHECK(refusal<DataError>([](auto& o) {
          o.train_dataset = {torch::zeros({0, 1}), torch::zeros({0, 1})};
        }) == "train_dataset: it has no examples");
  CHECK(refusal<DataError>([](auto& o) {
          o.loss = {};
          o.args.per_device_train_batch_size = 2;
        }).starts_with("no loss is set, and the model's first output, float32 [2, 1], can't be the loss"));
  CHECK(refusal<ArgumentError>([](auto& o) { o.train_dataset = {}; }) ==
        "train_dataset is not set: train() needs it");
  CHECK(refusal<ArgumentError>([](auto& o) {
          o.model = torch::nn::Identity();
        }).find("no parameters to train") != std::string::npos);
  CHECK(refusal<DataError>([](auto& o) {
          o.compute_loss = [](etude::Model&, const etude::Batch&, std::optional<double>) {
            return etude::LossOutput{torch::zeros({}), {}};
          };
          o.loss = {};
        }).find("depends on no parameter that is trained") != std::string::npos);
  CHECK(refusal<DataError>([](auto& o) {
          o.loss = [](const torch::Tensor&, const torch::Tensor&) { return torch::Tensor(); };
        }) == "the loss is an undefined tensor: must be one element");
  CHECK(refusal<DataError>([](auto& o) {
          o.train_dataset = torch::zeros({4, 1});
        }).find("the dataset has no labels") != std::string::npos);
  CHECK(refusal<MetricError>([](auto& o) {
          o.args.eval_strategy = etude::IntervalStrategy::epoch;
          o.args.metric_for_best_model = "acuracy";
        }).find("'acuracy', and the evaluation has no 'eval_acuracy': must be one of eval_loss") !=
        std::string::npos);
  CHECK(refusal<ArgumentError>([](auto& o) {
          o.args.batch_eval_metrics = true;
          o.compute_metrics = [](const etude::EvalPrediction&) { return etude::Metrics{}; };
        }).find("must take a second argument, bool compute_result") != std::string::npos);
  CHECK(refusal<ArgumentError>([](auto& o) {
          o.model_init = [] { return toy::Line(); };
        }).find("model and model_init are both set") != std::string::npos);
  CHECK(refusal<DataError>([](auto& o) {
          o.train_dataset = etude::Dataset(etude::Tensors(torch::zeros({2, 1}), torch::zeros({2, 1})),
                                           torch::zeros({2, 1}));
        }).find("takes 1 tensors, not 2") != std::string::npos);
}

struct AsksForAnEvaluation {
  void on(const etude::StepEnd& e) { e.control.should_evaluate = true; }
};

TEST_CASE("requesting an evaluation without a dataset is an error") {
  auto options = toy::options(toy::arguments());
  options.eval_dataset = {};
  etude::Trainer<AsksForAnEvaluation> trainer(options);
  CHECK_THROWS_WITH_AS(trainer.train(), "eval_dataset is not set: an evaluation needs it",
                       etude::ArgumentError);
}

struct TrainsAgain {
  std::function<void()> train = {};
  void on(const etude::StepEnd&) { train(); }
};

TEST_CASE("train() inside a training is refused") {
  etude::Trainer<TrainsAgain> trainer(toy::options(toy::arguments()));
  trainer.callback<TrainsAgain>().train = [&] { trainer.train(); };
  CHECK_THROWS_WITH_AS(trainer.train(), "train() was called from inside a training", etude::Error);
}

struct EvaluatesItself {
  std::function<etude::Metrics()> evaluate = {};
  double loss = 0;
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 1) loss = evaluate().at("eval_loss");
  }
};

TEST_CASE("evaluate() inside a training is an evaluation like any other, and the training continues") {
  etude::Trainer<EvaluatesItself> trainer(toy::options(toy::arguments(), 2));
  trainer.callback<EvaluatesItself>().evaluate = [&] { return trainer.evaluate(); };
  CHECK(trainer.train().global_step == 2);
  CHECK(trainer.callback<EvaluatesItself>().loss > 0);
  CHECK(trainer.model().is_training());
}

}  // namespace trainer_test
