#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/search.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/io/disk_full.hpp"
#include "etude/study/study.hpp"
#include "etude/tune/hyperparameter_search.hpp"

/// Searches that stop in the middle of a trial, and journals of other searches.
namespace tune_resumed_search_test {

using etude::TrainingArguments;
using etude::TrialState;
using toy::line;
using toy::rates;
using toy::search_arguments;

/// Raises a signal once; the program's handler returns, so the training throws Interrupted.
struct Interrupts {
  explicit Interrupts(int* left) : times(left) {
    std::signal(SIGTERM, [](int) {});
  }
  int* times;
  void on(const etude::StepEnd& e) const {
    if (e.state.global_step == 6 && --*times == 0) std::raise(SIGTERM);
  }
};

/// Records the step at which each training begins.
struct Begins {
  std::vector<std::int64_t>* steps;
  void on(const etude::TrainBegin& e) const { steps->push_back(e.state.global_step); }
};

TEST_CASE("an interrupted trial is resumed from its checkpoint") {
  const toy::Folder folder, unbroken;
  auto args = search_arguments(folder);
  args.save_strategy = etude::SaveStrategy::epoch;
  std::vector<std::int64_t> begun;
  int times = 2;
  const auto search = [&] {
    return etude::hyperparameter_search(
        [&](const TrainingArguments& given) {
          return etude::Trainer<Begins, Interrupts>(line(given), Begins{&begun}, Interrupts{&times});
        },
        {.n_trials = 3, .hp_space = rates}, args);
  };
  CHECK_THROWS_AS(search(), etude::Interrupted);
  const auto result = search();
  REQUIRE(begun.size() == 4);
  CHECK(begun[0] == 0);
  CHECK(begun[1] == 0);
  CHECK(begun[2] >= 4);  // trial 1 again, from its checkpoint
  CHECK(begun[3] == 0);
  REQUIRE(result.trials.size() == 3);
  args.output_dir = unbroken;
  const auto whole =
      etude::hyperparameter_search(toy::line_trainer, {.n_trials = 3, .hp_space = rates}, args);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(result.trials[i].state == TrialState::complete);
    CHECK(result.trials[i].params == whole.trials[i].params);
    CHECK(result.trials[i].values == whole.trials[i].values);
    CHECK(result.trials[i].intermediate_values == whole.trials[i].intermediate_values);
  }
}

TEST_CASE("a trial whose beginning the journal has lost is resumed from its checkpoint") {
  const toy::Folder folder;
  auto args = search_arguments(folder);
  args.save_strategy = etude::SaveStrategy::epoch;
  int times = 2;
  std::vector<std::int64_t> begun;
  const auto search = [&](std::uint64_t seed) {
    args.seed = static_cast<std::int64_t>(seed);
    return etude::hyperparameter_search(
        [&](const TrainingArguments& given) {
          return etude::Trainer<Begins, Interrupts>(line(given), Begins{&begun}, Interrupts{&times});
        },
        {.n_trials = 2, .hp_space = rates}, args);
  };
  CHECK_THROWS_AS(search(42), etude::Interrupted);
  const auto text = toy::read_text(folder / "study.log");
  const auto end = text.rfind('\n', text.rfind("\"op_code\":4")) + 1;
  toy::write_text(folder / "study.log", text.substr(0, end));
  // With different hyperparameters, the checkpoint doesn't belong to this trial.
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>([&] { search(7); }),
                      "has checkpoints of an earlier search"));
  begun.clear();
  toy::write_text(folder / "study.log", text.substr(0, end));
  const auto result = search(42);
  CHECK(begun.at(0) >= 4);
  REQUIRE(result.trials.size() == 2);
  for (const auto& trial : result.trials) CHECK(trial.state == TrialState::complete);
}

/// Limits the size of the files that this process can write.
class FileSizeLimit {
 public:
  FileSizeLimit() : handler_(std::signal(SIGXFSZ, SIG_IGN)) { ::getrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    lift();
    std::signal(SIGXFSZ, handler_);
  }
  void set(::rlim_t bytes) const {
    auto limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  void lift() const { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  void (*handler_)(int);
  struct rlimit before_ {};
};

TEST_CASE("a full disk ends the search and fails no trial, and the same trial goes on once there is room") {
  const toy::Folder folder, unbroken;
  const FileSizeLimit limit;
  auto args = search_arguments(folder);
  args.save_strategy = etude::SaveStrategy::epoch;
  struct Fills {
    const FileSizeLimit* limit;
    const bool* is_full;
    void on(const etude::StepEnd& e) const {
      if (*is_full && e.state.trial_name == "run-1" && e.state.global_step == 6) limit->set(100);
    }
  };
  bool is_full = true;
  const auto search = [&] {
    return etude::hyperparameter_search(
        [&](const TrainingArguments& given) {
          return etude::Trainer<Fills>(line(given), Fills{&limit, &is_full});
        },
        {.n_trials = 3, .max_restarts = 1, .hp_space = rates}, args);
  };
  // The journal is full too, so the fault can't be recorded there.
  const auto fault = toy::fault_of<etude::DiskFullError>(search);
  limit.lift();
  CHECK(toy::contains(
      fault, "File too large; the next call resumes the search with the same trial, once there is room"));
  CHECK_FALSE(toy::names_in(std::string(folder)).contains("study.log.0.1.lock"));
  is_full = false;
  const auto result = search();
  args.output_dir = unbroken;
  const auto whole =
      etude::hyperparameter_search(toy::line_trainer, {.n_trials = 3, .hp_space = rates}, args);
  REQUIRE(result.trials.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(result.trials[i].state == TrialState::complete);
    CHECK(result.trials[i].params == whole.trials[i].params);
    CHECK(result.trials[i].values == whole.trials[i].values);
  }
}

TEST_CASE("mistakes of the search cost no trial, however often they are made") {
  const toy::Folder folder, unbroken;
  auto args = search_arguments(folder);
  const auto search = [&](const etude::SearchSpace& space, std::int64_t n_trials) {
    return etude::hyperparameter_search(toy::line_trainer,
                                        {.n_trials = n_trials, .max_restarts = 0, .hp_space = space}, args);
  };
  search(rates, 2);
  const etude::SearchSpace other{{"weight_decay", etude::FloatRange{.low = 0, .high = 1}},
                                 {"learning_rate", etude::Choices{{0.1, 0.2}}}};
  for (int i = 0; i < 3; ++i)
    CHECK(toy::fault_of<etude::ArgumentError>([&] { search(other, 4); }) ==
          "learning_rate is one of 0.1, 0.2: must be a logarithmic range of numbers, as in trial 0");
  const auto result = search(rates, 4);
  args.output_dir = unbroken;
  const auto whole = search(rates, 4);
  REQUIRE(result.trials.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(result.trials[i].state == TrialState::complete);
    CHECK(result.trials[i].params == whole.trials[i].params);
    CHECK(result.trials[i].values == whole.trials[i].values);
  }
}

TEST_CASE("a trial that ends at the same step again and again is failed") {
  const toy::Folder folder;
  int times = 1;
  const auto search = [&] {
    times = 1;
    return etude::hyperparameter_search(
        [&](const TrainingArguments& given) {
          return etude::Trainer<Interrupts>(line(given), Interrupts{&times});
        },
        {.n_trials = 1, .max_restarts = 2, .hp_space = rates}, search_arguments(folder));
  };
  for (int i = 0; i < 3; ++i) CHECK_THROWS_AS(search(), etude::Interrupted);
  const auto result = search();
  CHECK(result.trials[0].state == TrialState::fail);
  CHECK(result.trials[0].user_attrs["error"] == "its process ended 3 times at step 0");
  CHECK(result.best_runs.empty());
  CHECK(toy::fault_of<etude::Error>([&] { result.best_run(); }) == "none of 1 trials is complete");
}

/// Raises a signal after each of the first steps.
struct InterruptsSteps {
  explicit InterruptsSteps(int* left) : times(left) {
    std::signal(SIGTERM, [](int) {});
  }
  int* times;
  void on(const etude::StepEnd&) const {
    if ((*times)-- > 0) std::raise(SIGTERM);
  }
};

TEST_CASE("a trial that gets on between its restarts may be restarted as often as it takes") {
  const toy::Folder folder;
  auto args = search_arguments(folder);
  args.save_strategy = etude::SaveStrategy::epoch;
  int times = 5;
  const auto search = [&] {
    return etude::hyperparameter_search(
        [&](const TrainingArguments& given) {
          return etude::Trainer<InterruptsSteps>(line(given), InterruptsSteps{&times});
        },
        {.n_trials = 1, .max_restarts = 1, .hp_space = rates}, args);
  };
  for (int i = 0; i < 5; ++i) CHECK_THROWS_AS(search(), etude::Interrupted);
  CHECK(search().trials.at(0).state == TrialState::complete);
}

/// Makes the trainer of a trial, whose first evaluation is its best if a greater `error` is better.
etude::Trainer<Interrupts> worsening(const TrainingArguments& given, int* times) {
  auto options = line(given);
  options.compute_metrics = [](const etude::EvalPrediction& prediction) {
    const auto error = prediction.predictions.single() - prediction.label_ids.single();
    return etude::Metrics{{"error", error.square().mean().item<double>()}};
  };
  return etude::Trainer<Interrupts>(std::move(options), Interrupts{times});
}

TEST_CASE("a resumed trial has the objective of a best model that was evaluated before the interruption") {
  const toy::Folder folder;
  auto args = search_arguments(folder);
  args.save_strategy = etude::SaveStrategy::epoch;
  args.load_best_model_at_end = true;
  args.metric_for_best_model = "error";
  args.greater_is_better = true;
  int times = 1;
  const auto search = [&] {
    return etude::hyperparameter_search(
        [&](const TrainingArguments& given) { return worsening(given, &times); },
        {.n_trials = 1, .hp_space = rates}, args);
  };
  CHECK_THROWS_AS(search(), etude::Interrupted);
  const auto result = search();
  REQUIRE(result.trials.at(0).state == TrialState::complete);
  CHECK(result.best_run().objective.at(0) == result.trials[0].intermediate_values.at(1));
  CHECK(result.best_run().checkpoint.filename() == "checkpoint-4");
}

TEST_CASE("a trial whose process ended between the verdict of the pruner and its end is pruned") {
  const toy::Folder folder;
  struct Always : etude::Pruner {
    Verdict judge(const std::vector<etude::FrozenTrial>&, const etude::FrozenTrial&,
                  etude::StudyDirection) const override {
      return {.prune = true, .notes = {{"note", 1}}};
    }
  };
  int trainers = 0;
  const auto search = [&] {
    return etude::hyperparameter_search(
        [&](const TrainingArguments& given) {
          ++trainers;
          return etude::Trainer<>(line(given));
        },
        {.n_trials = 1, .hp_space = rates}, search_arguments(folder));
  };
  std::filesystem::create_directories(std::string(folder));
  {
    etude::Study study({.journal = folder / "study.log", .pruner = std::make_shared<Always>()});
    study.set_folder(std::string(folder));
    auto trial = study.claim(1);
    trial->suggest_float("learning_rate", {.low = 1e-3, .high = 0.5, .log = true});
    trial->report(1, 1);
    CHECK(trial->should_prune());
  }
  const auto result = search();
  CHECK(trainers == 0);
  CHECK(result.trials.at(0).state == TrialState::pruned);
  CHECK(result.trials[0].system_attrs["note"] == 1);
}

TEST_CASE("a trial that another program has ended meanwhile stays as it is") {
  const toy::Folder folder;
  struct Ends {
    std::string journal;
    void on(const etude::TrainEnd&) const {
      std::ofstream(journal, std::ios::app)
          << R"({"op_code":6,"worker_id":"dashboard","trial_id":0,"state":3,"values":null})"
          << "\n";
    }
  };
  const auto result = etude::hyperparameter_search(
      [&](const TrainingArguments& given) {
        return etude::Trainer<Ends>(line(given), Ends{folder / "study.log"});
      },
      {.n_trials = 1, .hp_space = rates}, search_arguments(folder));
  CHECK(result.trials.at(0).state == TrialState::fail);
}

TEST_CASE("nothing outside output_dir is removed or read, and attributes of other types don't count") {
  const toy::Folder folder, other;
  std::filesystem::create_directories(other / "checkpoint-5");
  auto args = search_arguments(folder);
  const auto search = [&](std::int64_t n_trials) {
    return etude::hyperparameter_search(
        toy::line_trainer, {.n_trials = n_trials, .keep_best_only = true, .hp_space = rates}, args);
  };
  search(1);
  const auto others = std::filesystem::path(std::string(other));
  for (const std::string& run_dir :
       {"\"" + others.string() + "\"", "\"../" + others.filename().string() + "\"", std::string("5")}) {
    std::ofstream file(folder / "study.log", std::ios::app);
    file << R"({"op_code":4,"worker_id":"x","study_id":0,"datetime_start":null,"state":1,"values":[-1],)"
         << R"("user_attrs":{"global_step":"a","checkpoint":7,"run_dir":)" << run_dir
         << R"(},"system_attrs":{"etude:restarts":5}})"
         << "\n";
  }
  const auto result = search(5);
  CHECK(std::filesystem::exists(other / "checkpoint-5"));
  CHECK(result.trials.size() == 5);
  CHECK(result.best_run().run_dir.empty());
}

TEST_CASE("mistakes of the search end it with an ArgumentError") {
  const auto make = toy::line_trainer;
  const auto fault = [&](const etude::HyperparameterSearchOptions& options, const auto& with) {
    const toy::Folder folder;
    return toy::fault_of<etude::ArgumentError>(
        [&] { etude::hyperparameter_search(with, options, search_arguments(folder)); });
  };
  CHECK(fault({.n_trials = 0}, make) == "n_trials is 0: must be from 1 to 1000000000");
  CHECK(fault({.hp_space = {{"learning_rat", etude::FloatRange{}}}}, make) ==
        "hp_space has learning_rat: must be a field of TrainingArguments; did you mean 'learning_rate'?");
  CHECK(fault({.hp_space = {{"learning_rate", etude::FloatRange{.low = -1, .high = 1}}}}, make) ==
        "hp_space has -1 for learning_rate: must be at least 0");
  CHECK(toy::contains(fault({.hp_space = {{"optim", etude::Choices{{"sgd", "sdg"}}}}}, make),
                      "optim is \"sdg\": must be one of"));
  CHECK(fault({.hp_space = rates}, [](const TrainingArguments& args) {
          return etude::Trainer<>(toy::options(args, 4, 4));
        }) == "model_init is not set: hyperparameter_search needs it to make the model anew for each trial");
  CHECK(fault({.hp_space = rates}, [](const TrainingArguments& args) {
          auto others = args;
          others.output_dir = "/nonexistent";
          return etude::Trainer<>(line(others));
        }).ends_with("it must be made from the arguments that are given to the function"));
  CHECK(fault({.hp_space = rates, .compute_objective = [](const etude::Metrics&) { return 1.0; }}, make) ==
        "direction is unset: must be minimize or maximize with compute_objective");
  CHECK(
      fault({.hp_space = rates}, [](const TrainingArguments& args) {
        auto options = line(args);
        options.compute_metrics = [](const etude::EvalPrediction&) { return etude::Metrics{{"score", 1.0}}; };
        return etude::Trainer<>(std::move(options));
      }) == "direction is unset: must be minimize or maximize, since the objective is the sum of eval_score");
  CHECK(fault({.sampler = etude::SearchSampler::grid, .hp_space = rates}, make) ==
        "sampler is grid: learning_rate must have choices or a step");
}

TEST_CASE("checkpoints of another search are never resumed") {
  const toy::Folder folder;
  auto args = search_arguments(folder);
  args.save_strategy = etude::SaveStrategy::epoch;
  const auto search = [&] {
    return etude::hyperparameter_search(toy::line_trainer, {.n_trials = 1, .hp_space = rates}, args);
  };
  search();
  std::filesystem::remove(folder / "study.log");
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>(search), "it has the trials of another study"));
  // A different folder doesn't belong to the study either.
  const toy::Folder third;
  const auto journal = third / "study.log";
  const auto search_in = [&](const std::string& where) {
    args.output_dir = where;
    etude::hyperparameter_search(toy::line_trainer, {.n_trials = 1, .journal = journal, .hp_space = rates},
                                 args);
  };
  search_in(third);
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>([&] { search_in(third / "b"); }),
                      "must be the folder in which the study etude was begun"));
}

struct Twice {
  ETUDE_STRUCT(Twice, (double, learning_rate, "the name of another struct's field", 1.0));
};

TEST_CASE("options that mean nothing together are errors") {
  const toy::Folder folder;
  const auto make = toy::line_trainer;
  auto args = search_arguments(folder);
  const auto fault = [&](const etude::HyperparameterSearchOptions& options) {
    return toy::fault_of<etude::ArgumentError>([&] { etude::hyperparameter_search(make, options, args); });
  };
  using enum etude::StudyDirection;
  CHECK(fault({.direction = {minimize, maximize}, .pruner = etude::SearchPruner::median}) ==
        "pruner is set: must be none with several directions");
  CHECK(
      fault({.timeout = 3, .sampler = etude::SearchSampler::random, .driver = etude::SearchDriver::stdio}) ==
      "driver is stdio: timeout, sampler must be left out, since the other program decides that");
  CHECK(fault({.direction = {not_set}}) == "direction has not_set: must be minimize or maximize");
  CHECK(fault({.study_name = "\xff"}) == "study_name isn't UTF-8");
  args.eval_strategy = etude::IntervalStrategy::no;
  CHECK(fault({.pruner = etude::SearchPruner::median}) ==
        "eval_strategy is no: must be steps or epoch with a pruner, which judges evaluations");
  CHECK(toy::fault_of<etude::ArgumentError>([&] {
          etude::hyperparameter_search(
              [](const TrainingArguments& given, const Twice&) { return etude::Trainer<>(line(given)); }, {},
              args, Twice{});
        }) == "learning_rate is a field of several structs: must be one of Twice alone");
  for (const char* name : {"", "..", "a/b"})
    CHECK(fault({.hp_space = rates, .hp_name = [=](const etude::Trial&) { return std::string(name); }}) ==
          "hp_name gives '" + std::string(name) + "': must be a name for a folder in output_dir");
  CHECK(fault({.hp_space = rates, .hp_name = [](const etude::Trial&) { return std::string("one"); }}) ==
        "hp_name gives 'one', which another trial has: must be unique");
}

}  // namespace tune_resumed_search_test
