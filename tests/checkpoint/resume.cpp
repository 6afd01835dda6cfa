#include "etude/checkpoint/resume.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "common/toy.hpp"

namespace {

// A run with everything in it that can come out differently: two epochs of 23 batches, the last accumulation
// group of each a partial one, shuffled, with dropout, with random numbers in the data, in a callback and in
// a generator of the user's.
struct Counts {
  ETUDE_STRUCT(Counts, (std::int64_t, steps, "StepEnd"), (std::int64_t, substeps, "SubstepEnd"),
               (std::int64_t, step_begins, "StepBegin"), (std::int64_t, batches, "BatchFetched"),
               (std::int64_t, epoch_begins, "EpochBegin"), (std::int64_t, epoch_ends, "EpochEnd"),
               (std::int64_t, epochs, "TrainingRunEpochEnd"), (std::int64_t, logs, "Log"),
               (std::int64_t, evaluations, "Evaluate"), (std::int64_t, predictions, "PredictionStep"),
               (double, drawn, "of the generator"), (std::vector<double>, losses, "of each micro-batch"));
  std::mt19937* engine = nullptr;

  void on(const etude::StepEnd& e) {
    ++steps;
    e.log("drawn", drawn);
  }
  void on(const etude::SubstepEnd&) { ++substeps; }
  void on(const etude::StepBegin&) { ++step_begins; }
  void on(etude::BatchFetched& e) {
    ++batches;
    e.batch.inputs = e.batch.inputs.transform(
        [](const torch::Tensor& tensor) { return tensor + 0.01 * torch::randn_like(tensor); });
  }
  void on(const etude::EpochBegin& e) {
    ++epoch_begins;
    e.control.should_evaluate = true;
    torch::rand({3});
  }
  void on(const etude::EpochEnd&) { ++epoch_ends; }
  void on(const etude::TrainingRunEpochEnd&) { ++epochs; }
  void on(const etude::Log&) { ++logs; }
  void on(const etude::Evaluate&) { ++evaluations; }
  void on(const etude::PredictionStep&) { ++predictions; }
  void on(const etude::BackwardEnd& e) {
    losses.push_back(e.loss.item<double>());
    drawn += static_cast<double>((*engine)()) / 4294967296.0;
  }
};

// At the n-th event of all, does something.
struct At {
  std::int64_t n = -1;
  std::function<void()> act = {};
  std::int64_t seen = 0;
  template <std::derived_from<etude::Context> Event>
  void on(const Event&) {
    if (++seen == n) act();
  }
};

struct Dropping : torch::nn::Module {
  Dropping() {
    torch::manual_seed(5);
    first = register_module("first", torch::nn::Linear(3, 6));
    norm = register_module("norm", torch::nn::BatchNorm1d(6));
    last = register_module("last", torch::nn::Linear(6, 1));
  }
  torch::Tensor forward(torch::Tensor x) {
    return last(torch::dropout(torch::relu(norm(first(x))), 0.3, is_training()));
  }
  torch::nn::Linear first = nullptr, last = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};

etude::Dataset examples(std::int64_t n) {
  const auto x = torch::sin(torch::arange(n * 3).to(torch::kFloat)).reshape({n, 3});
  return {x, x.sum(1, true)};
}

struct Run {
  std::string folder;
  int workers = 0;
  std::mt19937 engine{11};
  std::function<void(etude::TrainingArguments&)> change = {};

  etude::TrainerOptions options() {
    auto args = toy::arguments();
    args.output_dir = folder;
    args.per_device_train_batch_size = 2;
    args.per_device_eval_batch_size = 4;
    args.gradient_accumulation_steps = 4;
    args.num_train_epochs = 2;
    args.learning_rate = 0.02;
    args.weight_decay = 0.01;
    args.lr_scheduler_type = etude::SchedulerType::cosine;
    args.warmup_steps = 3;
    args.logging_strategy = etude::IntervalStrategy::steps;
    args.logging_steps = 5;
    args.eval_strategy = etude::IntervalStrategy::steps;
    args.eval_steps = 4;
    args.metric_for_best_model = "loss";
    args.save_strategy = etude::SaveStrategy::steps;
    args.save_steps = 1;
    args.dataloader_num_workers = workers;
    if (change) change(args);
    auto options = toy::options(args);
    options.model = std::make_shared<Dropping>();
    options.train_dataset = examples(46);
    options.eval_dataset = {{"one", examples(9)}, {"two", examples(6)}};
    if (args.metric_for_best_model == "loss") options.eval_dataset = examples(9);
    options.generators = {{"mine", &engine}};
    return options;
  }
};

// Everything that must be equal to the bit.
struct Outcome {
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  std::string text;

  friend bool operator==(const Outcome& a, const Outcome& b) {
    if (a.text != b.text || a.tensors.size() != b.tensors.size()) return false;
    for (std::size_t i = 0; i < a.tensors.size(); ++i)
      if (a.tensors[i].first != b.tensors[i].first || !torch::equal(a.tensors[i].second, b.tensors[i].second))
        return false;
    return true;
  }
  friend std::ostream& operator<<(std::ostream& out, const Outcome& o) { return out << o.text; }
};

using Stopping = etude::EarlyStoppingCallback;

template <class Trainer>
Outcome outcome(Trainer& trainer) {
  Outcome result;
  for (const auto& [name, tensor] : trainer.model().state_dict())
    result.tensors.emplace_back(name, tensor.clone());
  for (const auto& [name, tensor] : trainer.optimizer()->state())
    result.tensors.emplace_back(name, tensor.clone());
  const auto& state = trainer.state();
  for (const auto& entry : state.log_history) {
    for (const auto& [name, value] : entry)
      if (name.find("_runtime") == name.npos && name.find("_per_second") == name.npos)
        result.text += fmt::format("{}={} ", name, value.dump());
    result.text += "\n";
  }
  result.text += fmt::format("step {} epoch {} best {} at {}\n", state.global_step, state.epoch,
                             state.best_metric.value_or(-1), state.best_global_step.value_or(-1));
  result.text += etude::to_json_value(trainer.template callback<Counts>()).dump() + "\n";
  result.text += etude::to_json_value(trainer.template callback<Stopping>()).dump() + "\n";
  return result;
}

auto trainer_of(Run& run, At at = {}) {
  return std::make_unique<etude::Trainer<Counts, Stopping, At>>(run.options(), Counts{.engine = &run.engine},
                                                                Stopping{.early_stopping_patience = 2}, at);
}

Outcome unbroken(int workers, const std::function<void(etude::TrainingArguments&)>& change = {}) {
  const toy::Folder folder;
  Run run{.folder = folder, .workers = workers, .change = change};
  const auto trainer = trainer_of(run);
  trainer->train();
  return outcome(*trainer);
}

TEST_CASE("a run that is resumed from any of its steps ends where the unbroken one ends, to the bit") {
  for (const int workers : {0, 2}) {
    const toy::Folder folder;
    Run run{.folder = folder, .workers = workers};
    const auto whole = trainer_of(run);
    CHECK(whole->train().global_step == 12);
    const auto expected = outcome(*whole);
    for (int step = 1; step <= 12; ++step) {
      CAPTURE(step);
      const toy::Folder other;
      Run again{.folder = other, .workers = workers};
      again.engine.seed(99);
      torch::manual_seed(step);
      const auto resumed = trainer_of(again);
      resumed->train({.resume_from_checkpoint = folder / fmt::format("checkpoint-{}", step)});
      CHECK(outcome(*resumed) == expected);
    }
  }
}

// Trains until it isn't interrupted any more; each time something happens at the n-th event.
template <class Act>
Outcome with_interruptions(std::int64_t n, Act act,
                           const std::function<void(etude::TrainingArguments&)>& change) {
  const toy::Folder folder;
  for (int attempt = 0;; ++attempt) {
    REQUIRE(attempt < 40);
    Run run{.folder = folder, .change = change};
    run.engine.seed(11);
    const auto trainer = trainer_of(run, At{attempt == 0 ? n : -1, act});
    try {
      trainer->train({.resume_from_checkpoint = etude::if_any});
      return outcome(*trainer);
    } catch (const etude::Interrupted&) {
    } catch (const std::runtime_error& error) {
      REQUIRE(std::string(error.what()) == "a fault");
    }
  }
}

std::int64_t events_in(const std::function<void(etude::TrainingArguments&)>& change) {
  const toy::Folder folder;
  Run run{.folder = folder, .change = change};
  const auto trainer = trainer_of(run);
  trainer->train();
  return trainer->callback<At>().seen;
}

const auto by_steps = [](etude::TrainingArguments& args) { args.save_steps = 3; };
const auto by_epochs = [](etude::TrainingArguments& args) {
  args.save_strategy = etude::SaveStrategy::epoch;
  args.eval_strategy = args.logging_strategy = etude::IntervalStrategy::epoch;
  args.eval_on_start = true;
};

TEST_CASE("a signal at any event is answered with a checkpoint from which the run ends as the unbroken one") {
  // Stands for a program's own handler, which returns.
  const auto before = ::signal(SIGTERM, [](int) {});
  for (const auto& change : {std::function<void(etude::TrainingArguments&)>(by_steps),
                             std::function<void(etude::TrainingArguments&)>(by_epochs)}) {
    const auto expected = unbroken(0, change);
    for (std::int64_t n = 1, count = events_in(change); n < count; n += 9) {
      CAPTURE(n);
      CHECK(with_interruptions(
                n, [] { ::raise(SIGTERM); }, change) == expected);
    }
  }
  ::signal(SIGTERM, before);
}

TEST_CASE("an exception at any event, with save_on_exception, costs nothing that was done") {
  const auto change = [](etude::TrainingArguments& args) {
    by_steps(args);
    args.save_on_exception = true;
  };
  const auto expected = unbroken(0, change);
  for (std::int64_t n = 8, count = events_in(change) - 3; n < count; n += 9) {
    CAPTURE(n);
    const auto result = with_interruptions(
        n, [] { throw std::runtime_error("a fault"); }, change);
    for (std::size_t i = 0; i < expected.tensors.size(); ++i)
      CHECK(torch::equal(result.tensors[i].second, expected.tensors[i].second));
  }
}

}  // namespace
