#include "etude/checkpoint/checkpoint.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <set>

#include "common/toy.hpp"

namespace {

etude::TrainerOptions saving(const toy::Folder& folder, std::int64_t steps) {
  auto args = toy::arguments();
  args.output_dir = folder;
  args.learning_rate = 0.05;
  args.lr_scheduler_type = etude::SchedulerType::linear;
  args.weight_decay = 0.1;
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = 2;
  args.num_train_epochs = 2;
  auto options = toy::options(args, steps);
  options.model = {};
  options.model_init = [] { return torch::nn::Linear(1, 1); };
  return options;
}

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

template <class Trainer>
torch::Tensor weights(Trainer& trainer) {
  return torch::nn::utils::parameters_to_vector(trainer.model().parameters()).detach().clone();
}

TEST_CASE("a checkpoint holds weights, optimizer, schedule, state and arguments") {
  const toy::Folder folder;
  etude::Trainer<> trainer(saving(folder, 3));
  trainer.train();
  CHECK(names_in(folder / "") == std::set<std::string>{"checkpoint-2", "checkpoint-4", "checkpoint-6"});
  CHECK(names_in(folder / "checkpoint-6") ==
        std::set<std::string>{"model.safetensors", "optimizer.safetensors", "scheduler.json",
                              "trainer_state.json", "training_args.json"});
  const auto state = etude::load_trainer_state(folder / "checkpoint-4");
  CHECK(state.global_step == 4);
  CHECK(state.max_steps == 6);
  CHECK(state.epoch == doctest::Approx(4 / 3.));
  const auto saved = etude::load_safetensors(folder / "checkpoint-6/model.safetensors").tensors;
  CHECK(torch::equal(saved.at(saved[0].first == "weight" ? 0 : 1).second, trainer.model().parameters()[0]));
}

TEST_CASE("save_only_model leaves out what only resuming needs") {
  const toy::Folder folder;
  auto options = saving(folder, 2);
  options.args.save_only_model = true;
  etude::Trainer<>(options).train();
  CHECK(names_in(folder / "checkpoint-2") ==
        std::set<std::string>{"model.safetensors", "trainer_state.json", "training_args.json"});
}

struct StopAt {
  std::int64_t step = 0;
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == step) e.control.request_stop("for today");
  }
};

TEST_CASE(
    "a training that is resumed in the middle of an epoch ends with the weights of one that was not "
    "interrupted") {
  const toy::Folder folder, other;
  etude::Trainer<> whole(saving(other, 5));
  whole.train();
  etude::Trainer<StopAt> first(saving(folder, 5), StopAt{7});
  CHECK(first.train().global_step == 7);
  etude::Trainer<toy::Recorder> second(saving(folder, 5));
  const auto output = second.train({.resume_from_checkpoint = true});
  CHECK(output.global_step == 10);
  CHECK(torch::equal(weights(second), weights(whole)));
  CHECK(second.callback<toy::Recorder>().count("StepEnd") == 3);
  CHECK(
      second.callback<toy::Recorder>().names().starts_with("InitEnd CheckpointLoaded TrainBegin EpochBegin"));
  // A path names the checkpoint; this one is older.
  etude::Trainer<> third(saving(folder, 5));
  third.train({.resume_from_checkpoint = folder / "checkpoint-4"});
  CHECK(torch::equal(weights(third), weights(whole)));
}

TEST_CASE("resuming a finished training does nothing more") {
  const toy::Folder folder;
  etude::Trainer<> trainer(saving(folder, 2));
  trainer.train();
  const auto before = weights(trainer);
  etude::Trainer<toy::Recorder> again(saving(folder, 2));
  CHECK(again.train({.resume_from_checkpoint = true}).global_step == 4);
  CHECK(torch::equal(weights(again), before));
  CHECK(again.callback<toy::Recorder>().count("StepBegin") == 0);
}

TEST_CASE("the weights of the best evaluation are loaded at the end") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  args.num_train_epochs = 3;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.save_strategy = etude::SaveStrategy::epoch;
  args.load_best_model_at_end = true;
  args.metric_for_best_model = "score";
  args.greater_is_better = true;
  auto options = toy::options(args, 1);
  options.compute_metrics = [scores = std::vector<double>{.5, .9, .9},
                             i = 0u](const etude::EvalPrediction&) mutable {
    return etude::Metrics{{"score", scores[i++]}};
  };
  etude::Trainer<> trainer(options);
  trainer.train();
  CHECK(trainer.state().best_metric == .9);
  CHECK(trainer.state().best_global_step == 2);  // a tie keeps the earlier
  CHECK(trainer.state().best_model_checkpoint == (folder / "checkpoint-2").string());
  const auto best = etude::load_safetensors(folder / "checkpoint-2/model.safetensors").tensors;
  for (const auto& [name, tensor] : best)
    for (const auto& [own, parameter] : trainer.model().named_parameters())
      if (name == own) CHECK(torch::equal(tensor, parameter));
}

TEST_CASE("what is no checkpoint is refused by name") {
  const toy::Folder folder;
  const auto refusal = [&](etude::TrainOptions options) -> std::string {
    try {
      etude::Trainer<>(saving(folder, 2)).train(options);
    } catch (const etude::CheckpointError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refusal({.resume_from_checkpoint = true}).find("has no checkpoint") != std::string::npos);
  CHECK(refusal({.resume_from_checkpoint = "/nonexistent"}).find("must be the folder of a checkpoint") !=
        std::string::npos);
  std::filesystem::create_directories(folder / "checkpoint-x");
  std::filesystem::create_directories(folder / "checkpoint-3");
  std::ofstream(folder / "checkpoint-3/trainer_state.json") << "{";
  CHECK_FALSE(refusal({.resume_from_checkpoint = true}).empty());
  CHECK_THROWS_AS(etude::load_trainer_state(folder / "checkpoint-3"), etude::CheckpointError);
}

TEST_CASE(
    "a folder that can't be written is an error that names it, and leaves the checkpoint that was there") {
  const toy::Folder folder;
  std::ofstream(folder / "file") << "not a folder";
  auto options = saving(folder, 2);
  options.args.output_dir = (folder / "file").string();
  CHECK_THROWS_AS(etude::Trainer<>(options).train(), etude::CheckpointError);
}

TEST_CASE("only folders of this form are checkpoints") {
  CHECK(etude::checkpoint_step("out/checkpoint-12") == 12);
  CHECK_FALSE(etude::checkpoint_step("out/checkpoint-").has_value());
  CHECK_FALSE(etude::checkpoint_step("out/checkpoint-12a").has_value());
  CHECK_FALSE(etude::checkpoint_step("out/.checkpoint-12.partial").has_value());
}

}  // namespace
