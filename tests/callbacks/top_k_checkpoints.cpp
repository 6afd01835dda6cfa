#include "etude/callbacks/top_k_checkpoints.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "common/printed.hpp"
#include "common/scored.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/step_based_evaluation.hpp"
#include "etude/io/manifest.hpp"

namespace callbacks_top_k_checkpoints_test {

using etude::TopKCheckpointsCallback;
using Trainer = etude::Trainer<TopKCheckpointsCallback>;
using toy::Names;
using toy::names_in;

/// One evaluation per step, with these values.
etude::TrainerOptions scored(const toy::Folder& folder, std::vector<double> values) {
  auto options = toy::scored(std::move(values));
  options.args.output_dir = folder;
  options.args.save_total_limit = 1;
  return options;
}

Names kept(std::vector<double> values, TopKCheckpointsCallback callback, bool async = false) {
  const toy::Folder folder;
  callback.watch_metric = "eval_score";
  if (!callback.greater_is_better) callback.greater_is_better = false;
  auto options = scored(folder, std::move(values));
  options.args.save_async = async;
  Trainer trainer(options, callback);
  trainer.train();
  CHECK(trainer.callback<TopKCheckpointsCallback>().state.ranked.size() ==
        names_in(folder / "top_checkpoints").size());
  for (const auto& [name, of] : trainer.callback<TopKCheckpointsCallback>().state.ranked)
    CHECK(etude::read_manifest(folder / "top_checkpoints" / name).global_step == of.global_step);
  return names_in(folder / "top_checkpoints");
}

TEST_CASE("the best few stay, under descriptive names") {
  for (const bool async : {false, true}) {
    CHECK((kept({.5, .3, .4, .2, .9}, {.k = 2}, async) ==
           Names{"checkpoint-2-eval_score=0.3000", "checkpoint-4-eval_score=0.2000"}));
    CHECK((kept({.5, .3, .4, .2, .9}, {.k = 2, .greater_is_better = true}, async) ==
           Names{"checkpoint-1-eval_score=0.5000", "checkpoint-5-eval_score=0.9000"}));
  }
  CHECK(kept({.5, .3}, {.k = 3}).size() == 2);
}

TEST_CASE("unless it is a loss, the greatest metric is best") {
  const toy::Folder folder;
  Trainer(scored(folder, {.5, .3, .9}), TopKCheckpointsCallback{.k = 1, .watch_metric = "eval_score"})
      .train();
  CHECK((names_in(folder / "top_checkpoints") == Names{"checkpoint-3-eval_score=0.9000"}));
}

TEST_CASE("the earlier of a tie stays, and a non-finite metric is never among the best") {
  CHECK((kept({.5, .5, .5}, {.k = 1}) == Names{"checkpoint-1-eval_score=0.5000"}));
  CHECK((kept({NAN, .9, -INFINITY, .95}, {.k = 1}) == Names{"checkpoint-2-eval_score=0.9000"}));
  CHECK((kept({NAN, .9, NAN}, {.k = 3}) == Names{"checkpoint-2-eval_score=0.9000"}));
}

TEST_CASE("a resumed run continues its ranking, also from one of the kept checkpoints") {
  const toy::Folder folder;
  const std::vector<double> values{.5, .3, .4, .35, .1};
  const TopKCheckpointsCallback callback{.k = 2, .watch_metric = "eval_score", .greater_is_better = false};
  Trainer first(scored(folder, values), callback);
  first.train();
  const Names best{"checkpoint-2-eval_score=0.3000", "checkpoint-5-eval_score=0.1000"};
  CHECK(names_in(folder / "top_checkpoints") == best);

  auto options = scored(folder, {.4, .35, .1});
  options.args.num_train_epochs = 5;
  Trainer resumed(options, callback);
  resumed.train({.resume_from_checkpoint = folder / "top_checkpoints" / "checkpoint-2-eval_score=0.3000"});
  CHECK(names_in(folder / "top_checkpoints") == best);
  CHECK((resumed.callback<TopKCheckpointsCallback>().state.ranked ==
         first.callback<TopKCheckpointsCallback>().state.ranked));
}

TEST_CASE("the metric's name may have characters that a file name can't") {
  const toy::Folder folder;
  auto options = scored(folder, {.5});
  options.compute_metrics = [](const etude::EvalPrediction&) { return etude::Metrics{{"a/b", .5}}; };
  Trainer(options, TopKCheckpointsCallback{.watch_metric = "eval_a/b", .greater_is_better = false}).train();
  CHECK((names_in(folder / "top_checkpoints") == Names{"checkpoint-1-eval_a_b=0.5000"}));
}

TEST_CASE("evaluations within an epoch count or don't, as configured") {
  for (const bool counts : {true, false}) {
    const toy::Folder folder;
    // Evaluations take place at step 2, at the end of the first epoch of three steps, at steps 4 and 6, and
    // at the end of the second.
    auto options = scored(folder, {.1, .5, .1, .2, .4});
    options.args.num_train_epochs = 2;
    options.train_dataset = toy::dataset(3);
    etude::Trainer<etude::StepBasedEvaluationCallback, TopKCheckpointsCallback>(
        options, etude::StepBasedEvaluationCallback{.eval_every_n_steps = 2},
        TopKCheckpointsCallback{
            .k = 2, .watch_metric = "eval_score", .greater_is_better = false, .count_intermediate = counts})
        .train();
    CHECK((names_in(folder / "top_checkpoints") ==
           (counts ? Names{"checkpoint-2-eval_score=0.1000", "checkpoint-4-eval_score=0.1000"}
                   : Names{"checkpoint-3-eval_score=0.5000", "checkpoint-6-eval_score=0.4000"})));
  }
}

TEST_CASE("a training that ends without a kept checkpoint is reported") {
  const auto reported = [](etude::IntervalStrategy evaluations, double value) {
    const toy::Folder folder;
    auto options = scored(folder, {value});
    options.args.eval_strategy = evaluations;
    options.args.log_level = etude::LogLevel::warning;
    return toy::printed(
        [&] {
          Trainer(options, TopKCheckpointsCallback{.watch_metric = "eval_score", .greater_is_better = false})
              .train();
        },
        STDERR_FILENO);
  };
  using enum etude::IntervalStrategy;
  const std::string nothing = "TopKCheckpointsCallback has kept nothing: ";
  CHECK(reported(no, 1).find(nothing + "no evaluation counts") != std::string::npos);
  CHECK(reported(epoch, NAN).find(nothing + "eval_score was never a finite number") != std::string::npos);
  CHECK(reported(epoch, 1).find(nothing) == std::string::npos);
}

TEST_CASE("unsupported options and inputs are refused by name") {
  const toy::Folder folder;
  Trainer none(scored(folder, {.5}), TopKCheckpointsCallback{.k = 0});
  CHECK_THROWS_WITH_AS(none.train(), "k is 0: must be at least 1", etude::ArgumentError);
  for (const auto epochs : {std::size_t{1}, std::size_t{2}}) {
    Trainer unknown(scored(folder, std::vector<double>(epochs, .5)),
                    TopKCheckpointsCallback{.watch_metric = "f1"});
    try {
      unknown.train();
      FAIL("it was taken");
    } catch (const etude::MetricError& error) {
      CHECK(std::string(error.what())
                .starts_with("watch_metric is 'f1', and no evaluation has it: must be one of eval_loss, "
                             "eval_score"));
    }
  }
}

}  // namespace callbacks_top_k_checkpoints_test
