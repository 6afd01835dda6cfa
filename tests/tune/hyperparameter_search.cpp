#include "etude/tune/hyperparameter_search.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/search.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/report.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/reflect/json_parser.hpp"
#include "etude/study/study.hpp"

namespace tune_hyperparameter_search_test {

using etude::TrainingArguments;
using etude::TrialState;
using toy::line;
using toy::rates;
using toy::search_arguments;

ETUDE_ENUM(Shape, line, curve);

struct LineArguments {
  ETUDE_STRUCT(LineArguments, (double, slope, "at first" | between(-10, 10) | searched(-1, 3).step(0.5), 0.0),
               (Shape, shape, "of the model" | searched(), Shape::line),
               (std::int64_t, degree, "of a curve" | at_least(1) | searched(2, 4).only_if("shape", "curve"),
                2),
               (bool, frozen, "not searched", false));
};

/// The evaluation's loss after two epochs of gradient descent over the four points, one by one, computed
/// without the library. It takes the points in the trainer's order, so only the arithmetic is checked.
double trained_alone(const toy::Folder& folder, double learning_rate) {
  auto args = search_arguments(folder);
  args.learning_rate = learning_rate;
  etude::Trainer<> trainer(line(args));
  trainer.train();
  return trainer.evaluate().at("eval_loss");
}

TEST_CASE("each trial trains as a trainer with its hyperparameters does, and the best one is the result") {
  const toy::Folder folder, alone;
  const auto result = etude::hyperparameter_search(toy::line_trainer, {.n_trials = 5, .hp_space = rates},
                                                   search_arguments(folder));
  REQUIRE(result.trials.size() == 5);
  double least = std::numeric_limits<double>::infinity();
  std::set<double> tried;
  for (const auto& trial : result.trials) {
    CAPTURE(trial.number);
    REQUIRE(trial.state == TrialState::complete);
    const double rate = trial.param("learning_rate").get<double>();
    tried.insert(rate);
    CHECK(trial.values.at(0) == trained_alone(alone, rate));
    CHECK(trial.intermediate_values.size() == 2);
    CHECK(trial.intermediate_values.at(2) == trial.values[0]);
    least = std::min(least, trial.values[0]);
  }
  CHECK(tried.size() == 5);
  const auto& best = result.best_run();
  CHECK(best.objective == std::vector{least});
  const auto config = etude::parse_json(toy::read_text(best.config));
  CHECK(config.size() == 1);
  CHECK(config["learning_rate"] == best.hyperparameters.at("learning_rate"));
  CHECK(best.run_dir == folder / ("run-" + best.run_id));
  CHECK(best.checkpoint.empty());
  const auto args =
      etude::parse_arguments(std::vector<std::string>{"--config", best.config}, search_arguments(folder));
  CHECK(args.learning_rate == config["learning_rate"]);
}

TEST_CASE("fields that are searched are the space, in the order and under the conditions of their struct") {
  const toy::Folder folder;
  std::vector<LineArguments> seen;
  const auto result = etude::hyperparameter_search(
      [&](const TrainingArguments& args, const LineArguments& model) {
        seen.push_back(model);
        return etude::Trainer<>(line(args));
      },
      {.n_trials = 12, .sampler = etude::SearchSampler::random}, search_arguments(folder), LineArguments{});
  REQUIRE(seen.size() == 12);
  std::set<double> slopes;
  std::set<Shape> shapes;
  for (std::size_t i = 0; i < 12; ++i) {
    const auto& params = result.trials[i].params;
    CHECK(result.trials[i].param("slope") == seen[i].slope);
    CHECK(std::round(seen[i].slope * 2) == seen[i].slope * 2);
    CHECK(result.trials[i].param("shape") == etude::to_string(seen[i].shape));
    CHECK(params.contains("degree") == (seen[i].shape == Shape::curve));
    if (params.contains("degree")) CHECK(result.trials[i].param("degree") == seen[i].degree);
    CHECK_FALSE(params.contains("frozen"));
    CHECK_FALSE(params.contains("learning_rate"));
    slopes.insert(seen[i].slope);
    shapes.insert(seen[i].shape);
  }
  CHECK(slopes.size() > 3);
  CHECK(shapes.size() == 2);
}

TEST_CASE("without a space, it is Hugging Face's") {
  const toy::Folder folder;
  auto args = search_arguments(folder);
  std::vector<TrainingArguments> seen;
  const auto result = etude::hyperparameter_search(
      [&](const TrainingArguments& given) {
        seen.push_back(given);
        return etude::Trainer<>(line(given));
      },
      {.n_trials = 3}, args);
  for (const auto& each : seen) {
    CHECK(each.learning_rate >= 1e-6);
    CHECK(each.learning_rate <= 1e-4);
    CHECK(each.num_train_epochs == std::round(each.num_train_epochs));
    CHECK(each.num_train_epochs >= 1);
    CHECK(each.num_train_epochs <= 5);
    CHECK(each.seed >= 1);
    CHECK(each.seed <= 40);
    CHECK(std::set<std::int64_t>{4, 8, 16, 32, 64}.contains(each.per_device_train_batch_size));
  }
  CHECK(result.trials[0].params.size() == 4);
}

/// Throws in the chosen trial.
struct Fails {
  std::int64_t trial;
  void on(const etude::StepEnd& e) const {
    if (e.state.trial_params["learning_rate"].is_number() && trial == number(e))
      throw std::runtime_error("no more");
  }
  static std::int64_t number(const etude::Context& e) { return std::stoll(e.state.trial_name->substr(4)); }
};

TEST_CASE("a trial that throws, or whose objective isn't a number, is failed, and the search goes on") {
  const toy::Folder folder;
  int evaluations = 0;
  const auto result = etude::hyperparameter_search(
      [](const TrainingArguments& args) { return etude::Trainer<Fails>(line(args), Fails{1}); },
      {.n_trials = 4,
       .direction = {etude::StudyDirection::minimize},
       .hp_space = rates,
       .compute_objective =
           [&](const etude::Metrics& metrics) {
             // The third and fourth evaluations belong to trial 2, since trial 1 has none.
             ++evaluations;
             return evaluations == 3 || evaluations == 4 ? std::nan("") : metrics.at("eval_loss");
           }},
      search_arguments(folder));
  REQUIRE(result.trials.size() == 4);
  CHECK(result.trials[0].state == TrialState::complete);
  CHECK(result.trials[1].state == TrialState::fail);
  CHECK(result.trials[1].user_attrs["error"] == "no more");
  CHECK(result.trials[2].state == TrialState::fail);
  CHECK(result.trials[3].state == TrialState::complete);
  CHECK(result.best_run().run_id != "1");
}

/// Keeps the state at the beginning of each training.
struct KeepsState {
  std::vector<etude::TrainerState>* states;
  void on(const etude::TrainBegin& e) const { states->push_back(e.state); }
};

TEST_CASE("the trainer's state names the trial and its hyperparameters") {
  const toy::Folder folder;
  std::vector<etude::TrainerState> states;
  const auto result = etude::hyperparameter_search(
      [&](const TrainingArguments& args) {
        return etude::Trainer<KeepsState>(line(args), KeepsState{&states});
      },
      {.n_trials = 2,
       .hp_space = rates,
       .hp_name = [](const etude::Trial& trial) { return fmt::format("try {}", trial.number()); }},
      search_arguments(folder));
  REQUIRE(states.size() == 2);
  CHECK(states[1].is_hyper_param_search);
  CHECK(states[1].trial_name == "try 1");
  CHECK(states[1].trial_params.size() == 1);
  CHECK(states[1].trial_params["learning_rate"].get<double>() ==
        result.trials[1].param("learning_rate").get<double>());
  CHECK(std::filesystem::exists(folder / "try 1/hyperparameters.json"));

  etude::Trainer<KeepsState> ordinary(line(search_arguments(folder)), KeepsState{&states});
  ordinary.train();
  CHECK_FALSE(states.back().is_hyper_param_search);
  CHECK(states.back().trial_name == std::nullopt);
}

/// Prunes each odd trial at its first report.
struct Odd : etude::Pruner {
  Verdict judge(const std::vector<etude::FrozenTrial>&, const etude::FrozenTrial& trial,
                etude::StudyDirection) const override {
    return {.prune = trial.number % 2 == 1};
  }
};

TEST_CASE("a pruned trial ends at the evaluation that the pruner has judged") {
  const toy::Folder folder;
  std::vector<std::string> reasons;
  struct Reasons {
    std::vector<std::string>* reasons;
    void on(const etude::Stop& e) const { reasons->emplace_back(e.reason); }
  };
  const auto result = etude::hyperparameter_search(
      [&](const TrainingArguments& args) { return etude::Trainer<Reasons>(line(args), Reasons{&reasons}); },
      {.n_trials = 4, .hp_space = rates, .custom_pruner = std::make_shared<Odd>()}, search_arguments(folder));
  for (const auto& trial : result.trials) {
    const bool is_odd = trial.number % 2 == 1;
    CHECK(trial.state == (is_odd ? TrialState::pruned : TrialState::complete));
    CHECK(trial.user_attrs["global_step"] == (is_odd ? 4 : 8));
    CHECK(trial.intermediate_values.size() == (is_odd ? 1 : 2));
  }
  CHECK(reasons == std::vector<std::string>{"the trial is pruned", "the trial is pruned"});
}

TEST_CASE("a search that is called again adds trials only up to n_trials, and reads the earlier ones") {
  const toy::Folder folder;
  int trainers = 0;
  const auto search = [&](std::int64_t n_trials) {
    return etude::hyperparameter_search(
        [&](const TrainingArguments& args) {
          ++trainers;
          return etude::Trainer<>(line(args));
        },
        {.n_trials = n_trials, .hp_space = rates, .enqueued_trials = {{{"learning_rate", 0.25}}}},
        search_arguments(folder));
  };
  const auto first = search(3);
  CHECK(trainers == 3);
  CHECK(first.trials[0].param("learning_rate") == 0.25);
  const auto second = search(5);
  CHECK(trainers == 5);
  const auto third = search(5);
  CHECK(trainers == 5);
  CHECK(third.trials.size() == 5);

  const toy::Folder unbroken;
  const auto whole = etude::hyperparameter_search(
      toy::line_trainer, {.n_trials = 5, .hp_space = rates, .enqueued_trials = {{{"learning_rate", 0.25}}}},
      search_arguments(unbroken));
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(third.trials[i].params == whole.trials[i].params);
    CHECK(third.trials[i].values == whole.trials[i].values);
  }
}

TEST_CASE("only the best trial's checkpoints are kept if that is asked") {
  const toy::Folder folder;
  auto args = search_arguments(folder);
  args.save_strategy = etude::SaveStrategy::epoch;
  const auto result = etude::hyperparameter_search(
      toy::line_trainer, {.n_trials = 4, .keep_best_only = true, .hp_space = rates}, args);
  const auto& best = result.best_run();
  CHECK(std::filesystem::exists(best.checkpoint));
  for (const auto& trial : result.trials) {
    const auto folders = etude::checkpoint_folders(folder / fmt::format("run-{}", trial.number));
    CHECK(folders.empty() == (std::to_string(trial.number) != best.run_id));
  }
}

TEST_CASE("the page of a search links those of its trials, which may have any names") {
  const toy::Folder folder;
  const auto name = [](const etude::Trial& trial) { return fmt::format("50% #{}", trial.number()); };
  const auto result = etude::hyperparameter_search(
      [](const TrainingArguments& given) { return etude::Trainer<etude::ReportCallback>(line(given)); },
      {.n_trials = 2, .hp_space = rates, .hp_name = name}, search_arguments(folder));
  CHECK(std::filesystem::exists(folder / "50% #1/report.html"));
  const auto page = toy::read_text(result.report);
  CHECK(page.find(R"("link":"50%25%20%230/report.html")") != page.npos);
  CHECK(page.find(R"("link":"50%25%20%231/report.html")") != page.npos);
}

TEST_CASE("the objective is that of the best model if it is loaded at the end, else of the last") {
  const toy::Folder folder, other;
  const auto search = [&](const std::string& where, bool loads_best) {
    auto args = search_arguments(folder);
    args.output_dir = where;
    args.save_strategy = etude::SaveStrategy::epoch;
    args.load_best_model_at_end = loads_best;
    args.metric_for_best_model = "error";
    args.greater_is_better = true;  // so that the first epoch is the best
    return etude::hyperparameter_search(
        [&](const TrainingArguments& given) {
          auto options = line(given);
          options.compute_metrics = [](const etude::EvalPrediction& prediction) {
            const auto error = prediction.predictions.single() - prediction.label_ids.single();
            return etude::Metrics{{"error", error.square().mean().item<double>()}};
          };
          return etude::Trainer<>(std::move(options));
        },
        {.n_trials = 1, .hp_space = rates}, args);
  };
  const auto best = search(folder, true), last = search(other, false);
  const auto& reports = best.trials.at(0).intermediate_values;
  REQUIRE(reports.at(1) > reports.at(2));
  CHECK(best.best_run().objective == std::vector{reports.at(1)});
  CHECK(best.best_run().checkpoint.filename() == "checkpoint-4");
  CHECK(last.best_run().objective == std::vector{reports.at(2)});
  CHECK(last.best_run().checkpoint.filename() == "checkpoint-8");
  CHECK(best.directions.at(0) == etude::StudyDirection::maximize);  // by greater_is_better
}

TEST_CASE("several objectives give the trials that no other beats in all") {
  const toy::Folder folder;
  const auto result = etude::hyperparameter_search(
      toy::line_trainer,
      {.n_trials = 6,
       .direction = {etude::StudyDirection::minimize, etude::StudyDirection::minimize},
       .hp_space = rates,
       .compute_objective =
           [](const etude::Metrics& metrics) {
             return std::vector{metrics.at("eval_loss"), -metrics.at("eval_loss")};
           }},
      search_arguments(folder));
  CHECK(result.best_runs.size() == 6);
  CHECK(toy::fault_of<etude::Error>([&] { result.best_run(); }) ==
        "the search has 2 directions: see best_runs");
}

TEST_CASE("a grid is every combination once, and the search ends with it") {
  const toy::Folder folder;
  const auto result = etude::hyperparameter_search(
      toy::line_trainer,
      {.n_trials = 100,
       .sampler = etude::SearchSampler::grid,
       .hp_space = {{"learning_rate", etude::FloatRange{.low = 0.1, .high = 0.35, .step = 0.1}},
                    {"num_train_epochs", etude::Choices{{1, 2}}}}},
      search_arguments(folder));
  std::set<std::pair<double, double>> tried;
  for (const auto& trial : result.trials)
    tried.emplace(trial.param("learning_rate").get<double>(), trial.param("num_train_epochs").get<double>());
  CHECK(result.trials.size() == 6);
  CHECK(tried == std::set<std::pair<double, double>>{
                     {0.1, 1}, {0.1, 2}, {0.2, 1}, {0.2, 2}, {0.1 + 2 * 0.1, 1}, {0.1 + 2 * 0.1, 2}});
}

TEST_CASE("the function may ask the trial for more than the structs have") {
  const toy::Folder folder;
  const auto search = [&](std::int64_t n_trials) {
    return etude::hyperparameter_search(
        [](const TrainingArguments& args, etude::Trial& trial) {
          trial.suggest_int("points", {.low = 2, .high = 5});
          return etude::Trainer<>(line(args));
        },
        {.n_trials = n_trials, .hp_space = rates}, search_arguments(folder));
  };
  search(2);
  const auto result = search(3);
  for (const auto& trial : result.trials) CHECK(trial.params.size() == 2);
  // A file for `--config` has only fields.
  CHECK(etude::parse_json(toy::read_text(folder / "run-2/hyperparameters.json")).size() == 1);
}

TEST_CASE("a direction doesn't change the objective, and a sum adds up all metrics but the loss and speeds") {
  const auto objective = [](const std::optional<std::string>& metric, etude::StudyDirection direction) {
    const toy::Folder folder;
    auto args = search_arguments(folder);
    args.metric_for_best_model = metric;
    const auto result = etude::hyperparameter_search(
        [](const TrainingArguments& given) {
          auto options = line(given);
          options.compute_metrics = [](const etude::EvalPrediction&) {
            return etude::Metrics{{"a", 10.0}, {"b", 200.0}};
          };
          return etude::Trainer<>(std::move(options));
        },
        {.n_trials = 1, .direction = {direction}, .hp_space = rates}, args);
    return result.best_run().objective.at(0);
  };
  CHECK(objective("b", etude::StudyDirection::minimize) == 200);
  CHECK(objective("loss", etude::StudyDirection::minimize) < 10);
  CHECK(objective({}, etude::StudyDirection::maximize) == 210);
}

TEST_CASE("without evaluations in the training, the model that it ends with is evaluated") {
  const toy::Folder folder, alone;
  auto args = search_arguments(folder);
  args.eval_strategy = etude::IntervalStrategy::no;
  const auto result =
      etude::hyperparameter_search(toy::line_trainer, {.n_trials = 1, .hp_space = rates}, args);
  CHECK(result.best_run().objective.at(0) ==
        trained_alone(alone, result.trials[0].param("learning_rate").get<double>()));
  CHECK(result.trials[0].intermediate_values.empty());
}

TEST_CASE("after the timeout no further trial begins") {
  const toy::Folder folder;
  const auto result = etude::hyperparameter_search(
      [](const TrainingArguments& given) {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        return etude::Trainer<>(line(given));
      },
      {.n_trials = 100000, .timeout = 0.1, .hp_space = rates}, search_arguments(folder));
  CHECK(!result.trials.empty());
  CHECK(result.trials.size() < 10);
  for (const auto& trial : result.trials) CHECK(trial.state == TrialState::complete);
}

TEST_CASE("a trial that was enqueued with a value that isn't allowed is failed alone") {
  const toy::Folder folder;
  const auto result = etude::hyperparameter_search(
      toy::line_trainer, {.n_trials = 3, .hp_space = rates, .enqueued_trials = {{{"learning_rate", 5.0}}}},
      search_arguments(folder));
  CHECK(result.trials[0].state == TrialState::fail);
  CHECK(result.trials[0].user_attrs["error"] ==
        "trial 0 was enqueued with other values: learning_rate is 5.0: must be from 0.001 to 0.5");
  CHECK(result.trials[2].state == TrialState::complete);
}

TEST_CASE("random numbers outside the trainer are the same in each trial, after others or alone") {
  const toy::Folder folder;
  std::set<float> drawn;
  torch::manual_seed(7);
  etude::hyperparameter_search(
      [&](const TrainingArguments& given) {
        drawn.insert(torch::rand({1}).item<float>());
        return etude::Trainer<>(line(given));
      },
      {.n_trials = 3, .hp_space = rates}, search_arguments(folder));
  CHECK(drawn.size() == 1);
}

TEST_CASE("the text of an exception may be any bytes") {
  const toy::Folder folder;
  const auto result = etude::hyperparameter_search(
      [](const TrainingArguments& given) {
        if (given.output_dir.ends_with("run-0")) throw std::runtime_error("\xff");
        return etude::Trainer<>(line(given));
      },
      {.n_trials = 2, .hp_space = rates}, search_arguments(folder));
  CHECK(result.trials[0].state == TrialState::fail);
  CHECK(result.trials[1].state == TrialState::complete);
}

}  // namespace tune_hyperparameter_search_test
