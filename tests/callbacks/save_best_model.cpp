#include "etude/callbacks/save_best_model.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <optional>

#include "common/fault_of.hpp"
#include "common/scored.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/best_model_folder.hpp"
#include "etude/callbacks/model_ema.hpp"
#include "etude/callbacks/step_based_evaluation.hpp"
#include "etude/callbacks/stochastic_weight_averaging.hpp"

namespace callbacks_save_best_model_test {

using etude::SaveBestModelCallback;
using toy::scored;

struct Witness {
  std::vector<double> weights = {};  // the bias after each epoch
  void on(const etude::EpochEnd& e) { weights.push_back(e.model.as<toy::LineImpl>().bias.item<double>()); }
};
using Trainer = etude::Trainer<Witness, SaveBestModelCallback>;

double weight(Trainer& trainer) { return trainer.model().as<toy::LineImpl>().bias.item<double>(); }

/// Returns the epoch (from 1) whose weights a training has at its end, and the training's callback.
std::pair<std::ptrdiff_t, SaveBestModelCallback> ends_with(const std::vector<double>& values,
                                                           std::optional<bool> greater,
                                                           const std::string& folder) {
  Trainer trainer(
      scored(values),
      SaveBestModelCallback{.save_path = folder, .watch_metric = "eval_score", .greater_is_better = greater});
  trainer.train();
  const auto& weights = trainer.callback<Witness>().weights;
  return {std::ranges::find(weights, weight(trainer)) - weights.begin() + 1,
          trainer.callback<SaveBestModelCallback>()};
}

TEST_CASE("a training ends with the weights of its best evaluation") {
  const toy::Folder folder;
  const auto best = folder / "best";
  const auto [epoch, callback] = ends_with({.5, .3, .4, .3}, false, best);
  CHECK(epoch == 2);  // the last is a tie, which isn't an improvement
  CHECK(callback.state.best_metric == .3);
  CHECK(callback.state.best_global_step == 2);
  CHECK(callback.state.best_metric_epoch == 2);
  CHECK(*etude::BestModelFolder(best).info() ==
        etude::BestModelInfo{.metric = "eval_score", .value = .3, .global_step = 2, .epoch = 2});
  CHECK(ends_with({.5, .3, .7, .6}, true, best).first == 3);
  CHECK(ends_with({.5, .3, .7, .6}, {}, best).first == 3);  // A score isn't a loss.
}

TEST_CASE("a non-finite value is never the best, even if it comes first") {
  const toy::Folder folder;
  CHECK(ends_with({NAN, .9, NAN, 1}, false, folder / "best").first == 2);
  CHECK(ends_with({INFINITY, .9, .95}, true, folder / "best").first == 3);
  const auto [epoch, callback] = ends_with({NAN, NAN}, false, folder / "nothing");
  CHECK(epoch == 2);
  CHECK(!callback.state.best_metric);
  CHECK(!std::filesystem::exists(folder / "nothing"));
}

TEST_CASE("leftovers of an earlier run are never loaded") {
  const toy::Folder folder;
  ends_with({.1, .2}, false, folder / "best");
  CHECK(ends_with({NAN, NAN}, false, folder / "best").first == 2);
  CHECK(ends_with({.9, 1}, false, folder / "best").first == 1);  // the .1 of the previous run doesn't count
}

TEST_CASE("a second training starts over, or continues with the best of the first") {
  for (const bool reset : {true, false}) {
    const toy::Folder folder;
    auto options = scored({.2, .3});
    options.compute_metrics = toy::scores({.2, .3, .5, .4});
    Trainer trainer(options, SaveBestModelCallback{.save_path = folder / "best",
                                                   .watch_metric = "eval_score",
                                                   .greater_is_better = false,
                                                   .reset_on_train = reset});
    trainer.train();
    trainer.train();
    const auto& weights = trainer.callback<Witness>().weights;
    CHECK(weight(trainer) == weights[reset ? 3 : 0]);
  }
}

TEST_CASE("a resumed run finds its best model, unless the folder has another") {
  for (const bool overwritten : {false, true}) {
    const toy::Folder folder;
    auto args = toy::arguments();
    args.output_dir = folder;
    args.save_strategy = etude::SaveStrategy::epoch;
    const SaveBestModelCallback callback{
        .watch_metric = "eval_score", .greater_is_better = false, .load_saved_checkpoint = true};
    {
      Trainer first(scored({.2, .3, .9, .9}, args), callback);
      first.train();
    }
    if (overwritten) ends_with({.05, .06}, false, folder / "best_model");
    auto options = scored({.5, .4, 1, 1}, args);
    Trainer resumed(options, callback);
    resumed.train({.resume_from_checkpoint = folder / "checkpoint-2"});
    const auto& weights = resumed.callback<Witness>().weights;  // of epochs 3 and 4
    CHECK(resumed.callback<SaveBestModelCallback>().state.best_metric == (overwritten ? .4 : .2));
    CHECK((weight(resumed) == weights[1]) == overwritten);
  }
}

TEST_CASE("without load_saved_checkpoint, and after an error, the model keeps its last weights") {
  const toy::Folder folder;
  Trainer trainer(scored({.2, .3}), SaveBestModelCallback{.save_path = folder / "best",
                                                          .watch_metric = "eval_score",
                                                          .greater_is_better = false,
                                                          .load_saved_checkpoint = false});
  trainer.train();
  CHECK(weight(trainer) == trainer.callback<Witness>().weights.back());

  auto options = scored({.2, .3, .4});
  options.compute_metrics = [i = 0](const etude::EvalPrediction&) mutable {
    if (++i == 2) throw std::runtime_error("broken");
    return etude::Metrics{{"score", .1}};
  };
  Trainer broken(options,
                 SaveBestModelCallback{
                     .save_path = folder / "best", .watch_metric = "eval_score", .greater_is_better = false});
  CHECK_THROWS_WITH(broken.train(), "broken");
  CHECK(weight(broken) == broken.callback<Witness>().weights.back());
}

TEST_CASE("evaluations within an epoch count or don't, as configured") {
  for (const bool counts : {true, false}) {
    const toy::Folder folder;
    const auto info =
        toy::best_of_two_epochs({.1, .5, .1, .2, .4}, SaveBestModelCallback{.save_path = folder / "best",
                                                                            .watch_metric = "eval_score",
                                                                            .greater_is_better = false,
                                                                            .count_intermediate = counts});
    CHECK(info->value == (counts ? .1 : .4));
    CHECK(info->global_step == (counts ? 2 : 6));
  }
}

TEST_CASE("an old checkpoint with a position in the epoch is still read") {
  SaveBestModelCallback callback;
  etude::StateReport report;
  etude::load_states(etude::parse_json(R"({"SaveBestModelCallback": {"args": {}, "attributes": {
    "best_global_step": 2, "place": {"epochs_done": 1, "phase": "steps"}}}})"),
                     {etude::CallbackState(callback)}, report);
  CHECK(callback.state.best_global_step == 2);
  CHECK(report.problems == std::vector<std::string>{"SaveBestModelCallback no longer has a member place"});
}

TEST_CASE("the last callback in the list that sets the model's weights at the end wins") {
  const toy::Folder folder;
  const SaveBestModelCallback save_best{
      .save_path = folder / "best", .watch_metric = "eval_score", .greater_is_better = false};
  const etude::StochasticWeightAveragingCallback swa{.swa_epoch_start = 2};
  const etude::ModelEmaCallback ema{.evaluate_during_training = false, .load_at_end = true};
  const auto options = [] { return scored({.5, .3, .4}); };
  const auto bias_after = [](auto&& trainer) {
    trainer.train();
    return trainer.model().template as<toy::LineImpl>().bias.template item<double>();
  };
  using SWA = etude::StochasticWeightAveragingCallback;
  using Ema = etude::ModelEmaCallback;
  const double best = bias_after(etude::Trainer<SaveBestModelCallback>(options(), save_best));
  const double mean = bias_after(etude::Trainer<SWA>(options(), swa));
  const double average = bias_after(etude::Trainer<Ema>(options(), ema));
  REQUIRE(best != mean);
  REQUIRE(mean != average);
  CHECK(bias_after(etude::Trainer<SWA, SaveBestModelCallback>(options(), swa, save_best)) == best);
  CHECK(bias_after(etude::Trainer<SaveBestModelCallback, SWA>(options(), save_best, swa)) == mean);
  CHECK(bias_after(etude::Trainer<SWA, Ema>(options(), swa, ema)) == average);
}

TEST_CASE("a metric that no evaluation has is an error that lists the existing ones") {
  const toy::Folder folder;
  for (const auto epochs : {std::size_t{1}, std::size_t{3}}) {
    Trainer trainer(scored(std::vector<double>(epochs, .5)),
                    SaveBestModelCallback{.save_path = folder / "best", .watch_metric = "f1"});
    try {
      trainer.train();
      FAIL("it was taken");
    } catch (const etude::MetricError& error) {
      CHECK(std::string(error.what())
                .starts_with("watch_metric is 'f1', and no evaluation has it: must be one of eval_loss, "
                             "eval_score, "));
    }
    CHECK(trainer.state().global_step == 1);  // before the step that follows
  }
}

TEST_CASE("unsupported options are refused, and existing files stay") {
  const toy::Folder folder;
  const auto refusal = [&](etude::TrainerOptions options, SaveBestModelCallback callback) -> std::string {
    Trainer trainer(options, callback);
    return toy::fault_of<etude::ArgumentError>([&] { trainer.train(); });
  };
  auto without = scored({.5});
  without.args.eval_strategy = etude::IntervalStrategy::no;
  without.eval_dataset = {};
  CHECK(refusal(without, {.save_path = folder / "best"}) ==
        "eval_dataset is not set: SaveBestModelCallback needs evaluations");

  toy::write_text(folder / "thesis.txt", "years of work");
  CHECK(refusal(scored({.5}), {.save_path = folder}).starts_with("save_path is /"));
  CHECK(refusal(scored({.5}), {.save_path = folder / "thesis.txt"}).starts_with("save_path is /"));
  CHECK(toy::read_text(folder / "thesis.txt") == "years of work");

  auto both = toy::arguments();
  both.output_dir = folder;
  both.load_best_model_at_end = true;
  both.save_strategy = etude::SaveStrategy::epoch;
  CHECK(refusal(scored({.5}, both), {}).starts_with("load_saved_checkpoint and load_best_model_at_end"));
}

}  // namespace callbacks_save_best_model_test
