#include "etude/callbacks/model_ema.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "common/fault_of.hpp"
#include "common/full_run.hpp"
#include "common/scored.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/best_model_folder.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/callbacks/step_based_evaluation.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/io/manifest.hpp"

namespace callbacks_model_ema_test {

using etude::IntervalStrategy;
using etude::ModelEmaCallback;
using etude::SaveStrategy;

/// Records the weights after each step, and the metrics of each evaluation.
struct Witness {
  std::vector<double> weights = {};
  std::vector<etude::Metrics> evaluations = {};
  void on(const etude::StepEnd& e) { weights.push_back(e.model.as<toy::LineImpl>().weight.item<double>()); }
  void on(const etude::Evaluate& e) { evaluations.push_back(e.metrics); }
};

using Trainer = etude::Trainer<Witness, ModelEmaCallback>;

double averaged(const ModelEmaCallback& callback, const std::string& name = "weight") {
  for (const auto& [own, tensor] : callback.average())
    if (own == name) return tensor.item<double>();
  throw std::runtime_error("no " + name);
}

TEST_CASE("the average moves after each step, by less than its decay at first") {
  auto args = toy::arguments();
  args.num_train_epochs = 3;
  for (const bool warm_up : {true, false}) {
    Trainer trainer(toy::options(args, 5), ModelEmaCallback{.decay = .9, .warm_up = warm_up});
    trainer.train();
    const auto& weights = trainer.callback<Witness>().weights;
    REQUIRE(weights.size() == 15);
    double expected = 0;  // the initial weight
    for (std::size_t n = 0; n < 15; ++n) {
      const double decay = warm_up ? std::min(.9, (1. + double(n)) / (10. + double(n))) : .9;
      expected = decay * expected + (1 - decay) * weights[n];
    }
    CAPTURE(warm_up);
    CHECK(averaged(trainer.callback<ModelEmaCallback>()) == doctest::Approx(expected).epsilon(1e-6));
    CHECK(trainer.callback<ModelEmaCallback>().state.num_updates == 15);
    CHECK(trainer.model().as<toy::LineImpl>().weight.item<double>() == weights.back());
  }
}

TEST_CASE("only every other step, if configured") {
  auto args = toy::arguments();
  Trainer trainer(toy::options(args, 5),
                  ModelEmaCallback{.decay = .5, .warm_up = false, .update_every_n_steps = 2});
  trainer.train();
  const auto& w = trainer.callback<Witness>().weights;
  CHECK(averaged(trainer.callback<ModelEmaCallback>()) == doctest::Approx(.25 * w[1] + .5 * w[3]));
}

TEST_CASE("an interval may count epochs, and continues when a run is resumed") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.num_train_epochs = 3;
  toy::save_to(folder, args, 7);
  const ModelEmaCallback callback{.decay = .5, .warm_up = false, .update_every_n_steps = "1.5ep"};
  Trainer trainer(toy::options(args, 4), callback);
  trainer.train();
  const auto& w = trainer.callback<Witness>().weights;
  const auto& whole = trainer.callback<ModelEmaCallback>();
  CHECK(whole.state.num_updates == 2);
  CHECK(averaged(whole) == doctest::Approx(.25 * 0 + .25 * w[5] + .5 * w[11]));
  Trainer resumed(toy::options(args, 4), callback);
  resumed.train({.resume_from_checkpoint = folder / "checkpoint-7"});
  CHECK(averaged(resumed.callback<ModelEmaCallback>()) == averaged(whole));
  CHECK(resumed.callback<ModelEmaCallback>().state.num_updates == 2);
}

TEST_CASE("the average is evaluated after the model, under its own names, and leaves the model unchanged") {
  auto args = toy::arguments();
  args.num_train_epochs = 2;
  args.eval_strategy = IntervalStrategy::epoch;
  auto options = toy::options(args, 4, 3);
  Trainer trainer(options, ModelEmaCallback{.decay = .5, .warm_up = false});
  trainer.train();
  const auto& heard = trainer.callback<Witness>();
  REQUIRE(heard.evaluations.size() == 4);
  CHECK(heard.evaluations[0].contains("eval_loss"));
  CHECK(heard.evaluations[1].contains("ema_model_eval_loss"));
  CHECK(trainer.model().as<toy::LineImpl>().weight.item<double>() == heard.weights.back());

  const auto loss_of = [&](double weight, double bias) {
    const auto [x, y] = toy::points(3);
    return (x * weight + bias - y).square().mean().item<double>();
  };
  const auto& ema = trainer.callback<ModelEmaCallback>();
  CHECK(heard.evaluations[3].at("ema_model_eval_loss") ==
        doctest::Approx(loss_of(averaged(ema), averaged(ema, "bias"))));
  CHECK(heard.evaluations[3].at("ema_model_eval_loss") != heard.evaluations[2].at("eval_loss"));
  const auto logs = trainer.state().log_history;
  CHECK(std::ranges::count_if(logs, [](const auto& line) { return line.contains("ema_model_eval_loss"); }) ==
        2);

  // Outside of a training, evaluate() evaluates only the model.
  CHECK(!trainer.evaluate().contains("ema_model_eval_loss"));
  CHECK(heard.evaluations.size() == 5);
}

TEST_CASE("each of several datasets has its metrics of the average") {
  auto args = toy::arguments();
  args.eval_strategy = IntervalStrategy::epoch;
  auto options = toy::options(args);
  options.eval_dataset = {{"near", toy::dataset(1)}, {"far", toy::dataset(2)}};
  Trainer trainer(options);
  trainer.train();
  const auto& evaluations = trainer.callback<Witness>().evaluations;
  REQUIRE(evaluations.size() == 4);
  CHECK(evaluations[2].contains("ema_model_eval_near_loss"));
  CHECK(evaluations[3].contains("ema_model_eval_far_loss"));
}

/// Throws in the second evaluation, which evaluates the average.
struct Breaker {
  int evaluations = 0;
  void on(const etude::PredictionStep&) {
    if (++evaluations == 2) throw std::runtime_error("broken");
  }
};

TEST_CASE("a failed evaluation of the average restores the model's own weights") {
  auto args = toy::arguments();
  args.eval_strategy = IntervalStrategy::epoch;
  etude::Trainer<Witness, ModelEmaCallback, Breaker> trainer(toy::options(args),
                                                             ModelEmaCallback{.load_at_end = true});
  CHECK_THROWS_WITH(trainer.train(), "broken");
  CHECK(trainer.model().as<toy::LineImpl>().weight.item<double>() ==
        trainer.callback<Witness>().weights.back());
}

using FullTrainer = etude::Trainer<toy::Quiet, toy::Diary, etude::EarlyStoppingCallback, ModelEmaCallback>;

std::string checksums(const ModelEmaCallback& callback) {
  std::string text;
  for (const auto& [name, tensor] : callback.average())
    text += fmt::format("{} {}\n", name, toy::checksum_of(tensor));
  return text;
}

TEST_CASE("a resumed run continues the average to the bit, whenever its checkpoint was written") {
  for (const bool async : {false, true}) {
    const toy::Folder folder;
    std::mt19937 engine;
    auto options = toy::full_options(folder, engine);
    options.args.save_async = async;
    const auto make = [&] {
      return std::make_unique<FullTrainer>(options, toy::Diary{.engine = &engine},
                                           etude::EarlyStoppingCallback{.early_stopping_patience = 99},
                                           ModelEmaCallback{.decay = .9});
    };
    const auto whole = make();
    whole->train();
    const auto expected = checksums(whole->callback<ModelEmaCallback>());
    for (const int step : {1, 5, 8}) {
      options.model = std::make_shared<toy::DroppingNet>();
      const auto resumed = make();
      resumed->train({.resume_from_checkpoint = folder / fmt::format("checkpoint-{}", step)});
      CAPTURE(step);
      CAPTURE(async);
      CHECK(checksums(resumed->callback<ModelEmaCallback>()) == expected);
      CHECK(toy::weights(*resumed) == toy::weights(*whole));
      CHECK(resumed->callback<ModelEmaCallback>().state.num_updates == 12);
    }
  }
}

TEST_CASE("the training itself is the same with and without it") {
  std::mt19937 engine;
  std::array<std::string, 2> weights;
  for (const bool with : {true, false}) {
    const toy::Folder folder;
    auto options = toy::full_options(folder, engine);
    FullTrainer trainer(options, toy::Diary{.engine = &engine},
                        etude::EarlyStoppingCallback{.early_stopping_patience = 99},
                        ModelEmaCallback{.evaluate_during_training = with});
    trainer.train();
    weights[with] = toy::weights(trainer);
  }
  CHECK(weights[0] == weights[1]);
}

TEST_CASE("a checkpoint without an average starts one from its weights") {
  const toy::Folder folder;
  auto args = toy::arguments();
  toy::save_to(folder, args, 2);
  etude::Trainer<Witness>(toy::options(args, 4)).train();
  Trainer trainer(toy::options(args, 4), ModelEmaCallback{.decay = .5, .warm_up = false});
  trainer.train({.resume_from_checkpoint = folder / "checkpoint-2"});
  const auto& w = trainer.callback<Witness>().weights;
  REQUIRE(w.size() == 2);
  const auto saved = etude::load_safetensors(folder / "checkpoint-2" / "model.safetensors").tensors;
  const double begin =
      saved[0].first == "weight" ? saved[0].second.item<double>() : saved[1].second.item<double>();
  CHECK(averaged(trainer.callback<ModelEmaCallback>()) ==
        doctest::Approx(.25 * begin + .25 * w[0] + .5 * w[1]));
}

TEST_CASE("an average that doesn't fit the model is an error that names the mismatch") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.save_strategy = SaveStrategy::epoch;
  Trainer(toy::options(args)).train();
  etude::save_safetensors(folder / "checkpoint-2" / "ema_model.safetensors", {{"weight", torch::zeros({3})}});
  std::filesystem::remove(folder / "checkpoint-2" / etude::manifest_file);
  Trainer trainer(toy::options(args));
  try {
    trainer.train({.resume_from_checkpoint = folder / "checkpoint-2"});
    FAIL("it was taken");
  } catch (const etude::CheckpointError& error) {
    CHECK(std::string(error.what()).find("bias is missing") != std::string::npos);
    CHECK(std::string(error.what()).find("weight must be") != std::string::npos);
  }
}

TEST_CASE("the best average is kept, with its metric") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.num_train_epochs = 4;
  args.eval_strategy = IntervalStrategy::epoch;
  auto options = toy::options(args, 2);
  // The scores are alternately for the model and for the average.
  options.compute_metrics = toy::scores({.9, .9, .5, NAN, .1, .3, .1, .1});
  Trainer trainer(options, ModelEmaCallback{.save_path = folder / "best",
                                            .watch_metric = "ema_model_eval_score",
                                            .greater_is_better = false});
  trainer.train();
  const etude::BestModelFolder best(folder / "best");
  REQUIRE(best.info());
  CHECK(best.info()->metric == "ema_model_eval_score");
  CHECK(best.info()->value == .1);
  CHECK(best.info()->global_step == 8);
  const auto kept = best.weights();
  REQUIRE(kept.size() == 2);
  for (const auto& [name, tensor] : kept)
    CHECK(tensor.item<double>() == averaged(trainer.callback<ModelEmaCallback>(), name));
}

TEST_CASE("evaluations of the average within an epoch count or don't, as configured") {
  for (const bool counts : {true, false}) {
    const toy::Folder folder;
    // The scores are alternately for the model and for the average.
    const auto info = toy::best_of_two_epochs({.1, .1, .5, .5, .1, .1, .2, .2, .4, .4},
                                              ModelEmaCallback{.save_path = folder / "best",
                                                               .watch_metric = "ema_model_eval_score",
                                                               .greater_is_better = false,
                                                               .count_intermediate = counts});
    CHECK(info->value == (counts ? .1 : .4));
    CHECK(info->global_step == (counts ? 2 : 6));
  }
}

TEST_CASE("without evaluations the average of the last epoch is kept") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.num_train_epochs = 2;
  auto options = toy::options(args, 2);
  options.eval_dataset = {};
  Trainer trainer(options, ModelEmaCallback{.evaluate_during_training = false, .save_path = folder / "best"});
  trainer.train();
  CHECK(etude::BestModelFolder(folder / "best").info()->global_step == 4);
}

TEST_CASE("the average replaces the model's weights at the end, if configured") {
  auto args = toy::arguments();
  Trainer trainer(toy::options(args, 3), ModelEmaCallback{.load_at_end = true});
  trainer.train();
  const auto weight = trainer.model().as<toy::LineImpl>().weight.item<double>();
  CHECK(weight != trainer.callback<Witness>().weights.back());
  CHECK(weight == averaged(trainer.callback<ModelEmaCallback>()));
}

TEST_CASE("buffers are averaged, or the model's current ones") {
  std::mt19937 engine;
  for (const bool use_buffers : {true, false}) {
    const toy::Folder folder;
    auto options = toy::full_options(folder, engine);
    FullTrainer trainer(options, toy::Diary{.engine = &engine},
                        etude::EarlyStoppingCallback{.early_stopping_patience = 99},
                        ModelEmaCallback{.use_buffers = use_buffers, .evaluate_during_training = false});
    trainer.train();
    const auto average = trainer.callback<ModelEmaCallback>().average();
    const auto buffers = trainer.model().named_buffers();
    REQUIRE(buffers.size() == 3);
    for (const auto& buffer : buffers) {
      CAPTURE(buffer.first);
      const auto& tensor = buffer.second;
      const auto averaged = std::ranges::find(average, buffer.first, &etude::NamedTensor::first);
      REQUIRE(averaged != average.end());
      // num_batches_tracked is a count, which is never averaged.
      CHECK(torch::equal(tensor, averaged->second) == (!use_buffers || !tensor.is_floating_point()));
    }
  }
}

TEST_CASE("unsupported options and inputs are refused by name") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.eval_strategy = IntervalStrategy::epoch;
  const auto refusal = [&](ModelEmaCallback callback) -> std::string {
    Trainer trainer(toy::options(args), callback);
    return toy::fault_of<etude::Error>([&] { trainer.train(); });
  };
  CHECK(refusal({.decay = 1.5}) == "decay is 1.5: must be from 0 to 1");
  CHECK(refusal({.decay = NAN}).starts_with("decay is nan"));
  CHECK(refusal({.update_every_n_steps = 0}) ==
        "update_every_n_steps is 0: must be a whole number of steps >= 1, or a fraction of all steps "
        "between 0 and 1");
  CHECK(refusal({.update_every_n_steps = "-1ep"}) ==
        "update_every_n_steps is -1ep: must be positive and finite");
  const auto unknown = refusal({.save_path = folder / "best", .watch_metric = "f1"});
  CHECK(unknown.find("f1") != std::string::npos);
  CHECK(unknown.find("ema_model_eval_loss") != std::string::npos);
  CHECK(!std::filesystem::exists(folder / "best"));

  toy::write_text(folder / "thesis.txt", "years of work");
  CHECK(refusal({.save_path = folder}).starts_with("save_path is "));
  CHECK(toy::read_text(folder / "thesis.txt") == "years of work");

  args.load_best_model_at_end = true;
  args.output_dir = folder;
  args.save_strategy = SaveStrategy::epoch;
  CHECK(refusal({.load_at_end = true}).starts_with("load_at_end and load_best_model_at_end"));
}

}  // namespace callbacks_model_ema_test
