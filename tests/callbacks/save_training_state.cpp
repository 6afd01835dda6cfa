#include "etude/callbacks/save_training_state.hpp"

#include <doctest/doctest.h>

#include <random>

#include "common/fault_of.hpp"
#include "common/full_run.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/io/manifest.hpp"

namespace callbacks_save_training_state_test {

using etude::SaveTrainingStateCallback;
using Trainer = etude::Trainer<SaveTrainingStateCallback>;
using toy::Names;
using toy::names_in;

struct Run {
  toy::Folder folder = {};
  etude::TrainingArguments args = toy::arguments();

  Run() {
    args.output_dir = folder;
    args.num_train_epochs = 5;
  }
  Names train(SaveTrainingStateCallback callback) {
    Trainer trainer(toy::options(args, 3), std::move(callback));
    trainer.train();
    return names_in(folder / "training_states");
  }
  std::int64_t step_of(const std::string& name) {
    return etude::read_manifest(folder / "training_states" / name).global_step;
  }
};

TEST_CASE("every other epoch of five: the second and the fourth") {
  Run run;
  CHECK((run.train({.save_every_n_epochs = 2, .save_at_end = false}) == Names{"epoch_2", "epoch_4"}));
  CHECK(run.step_of("epoch_2") == 6);
  CHECK(run.step_of("epoch_4") == 12);
}

TEST_CASE("checkpoints of steps, including the last, are kept up to the limit") {
  Run run;
  CHECK((run.train({.save_every_n_steps = 4}) == Names{"step_4", "step_8", "step_12", "final"}));
  CHECK(run.step_of("final") == 15);
  Run few;
  CHECK((few.train({.save_every_n_steps = 4, .max_checkpoints = 2}) == Names{"step_12", "final"}));
}

TEST_CASE("a training that stops before the callback gets TrainBegin saves its final state too") {
  struct Stops {
    void on(const etude::TrainBegin&) { throw etude::StopTraining("enough"); }
  };
  Run run;
  etude::Trainer<Stops, SaveTrainingStateCallback>(toy::options(run.args, 3)).train();
  CHECK((names_in(run.folder / "training_states") == Names{"final"}));
  CHECK(run.step_of("final") == 0);
}

TEST_CASE("an interval may count epochs or examples, across resumed runs") {
  Run run;
  CHECK((run.train({.save_every_n_steps = "1.5ep", .save_at_end = false}) ==
         Names{"step_5", "step_9", "step_14"}));
  CHECK(run.step_of("step_5") == 5);
  Run by_examples;
  CHECK((by_examples.train({.save_every_n_steps = "7sp", .save_at_end = false, .max_checkpoints = 1}) ==
         Names{"step_14"}));

  const auto resumed = [&](const SaveTrainingStateCallback& callback) {
    std::filesystem::remove_all(run.folder / "training_states" / "step_9");
    std::filesystem::remove_all(run.folder / "training_states" / "step_14");
    Trainer trainer(toy::options(run.args, 3), callback);
    trainer.train({.resume_from_checkpoint = run.folder / "training_states" / "step_5"});
    return names_in(run.folder / "training_states");
  };
  CHECK((resumed({.save_every_n_steps = "1.5ep", .save_at_end = false}) ==
         Names{"step_5", "step_9", "step_14"}));
}

TEST_CASE("the end is saved too if training stops early or ends within an epoch") {
  struct Stopper {
    void on(const etude::StepEnd& e) {
      if (e.state.global_step == 4) e.control.request_stop("enough");
    }
  };
  Run run;
  etude::Trainer<SaveTrainingStateCallback, Stopper> trainer(toy::options(run.args, 3));
  trainer.train();
  CHECK((names_in(run.folder / "training_states") == Names{"final"}));
  CHECK(run.step_of("final") == 4);
  Run within;
  within.args.max_steps = 5;
  CHECK((within.train({}) == Names{"final"}));
  CHECK(within.step_of("final") == 5);
}

TEST_CASE("epochs that should_epoch_stop ends count, too") {
  struct Cutter {
    void on(const etude::StepEnd& e) {
      if (e.state.global_step % 2 == 0) e.control.should_epoch_stop = true;
    }
  };
  Run run;
  run.args.num_train_epochs = 3;
  etude::Trainer<SaveTrainingStateCallback, Cutter> trainer(
      toy::options(run.args, 3), SaveTrainingStateCallback{.save_every_n_epochs = 1, .save_at_end = false});
  trainer.train();
  CHECK((names_in(run.folder / "training_states") == Names{"epoch_1", "epoch_2", "epoch_3"}));
  CHECK(run.step_of("epoch_1") == 2);
  CHECK(run.step_of("epoch_3") == 6);
}

TEST_CASE("an epoch that a stop interrupts counts once, after it is resumed") {
  struct Stopper {
    std::int64_t at = 0;
    void on(const etude::StepEnd& e) {
      if (e.state.global_step == at) e.control.request_stop("enough");
    }
  };
  Run run;
  run.args.num_train_epochs = 3;
  toy::save_to(run.folder, run.args);
  using Stopped = etude::Trainer<SaveTrainingStateCallback, Stopper>;
  const SaveTrainingStateCallback callback{.save_every_n_epochs = 1, .save_at_end = false};
  Stopped first(toy::options(run.args, 3), callback, Stopper{4});
  first.train();
  CHECK((names_in(run.folder / "training_states") == Names{"epoch_1"}));
  Stopped second(toy::options(run.args, 3), callback, Stopper{});
  second.train({.resume_from_checkpoint = true});
  CHECK((names_in(run.folder / "training_states") == Names{"epoch_1", "epoch_2", "epoch_3"}));
  CHECK(run.step_of("epoch_2") == 6);
}

TEST_CASE("a second training keeps its own count, and leaves what it doesn't replace") {
  struct Stopper {
    std::int64_t trainings = 0;
    void on(const etude::TrainBegin&) { ++trainings; }
    void on(const etude::StepEnd& e) {
      if (trainings == 2 && e.state.global_step == 2) e.control.request_stop("enough");
    }
  };
  Run run;
  run.args.num_train_epochs = 2;
  etude::Trainer<SaveTrainingStateCallback, Stopper> trainer(
      toy::options(run.args, 3),
      SaveTrainingStateCallback{.save_every_n_steps = 2, .save_at_end = false, .max_checkpoints = 1});
  trainer.train();
  CHECK((names_in(run.folder / "training_states") == Names{"step_6"}));
  trainer.train();
  CHECK((names_in(run.folder / "training_states") == Names{"step_2", "step_6"}));
}

using FullTrainer =
    etude::Trainer<toy::Quiet, toy::Diary, etude::EarlyStoppingCallback, SaveTrainingStateCallback>;

TEST_CASE("a training resumes from each of them to the bit, also if it was written asynchronously") {
  for (const bool async : {false, true}) {
    const toy::Folder folder;
    std::mt19937 engine;
    auto options = toy::full_options(folder, engine);
    options.args.save_async = async;
    options.args.save_strategy = etude::SaveStrategy::no;
    options.args.save_total_limit = 1;
    const SaveTrainingStateCallback callback{
        .save_dir = folder / "kept", .save_every_n_epochs = 1, .save_every_n_steps = 3, .max_checkpoints = 9};
    const auto make = [&] {
      options.model = std::make_shared<toy::DroppingNet>();
      return std::make_unique<FullTrainer>(options, toy::Diary{.engine = &engine},
                                           etude::EarlyStoppingCallback{.early_stopping_patience = 99},
                                           callback);
    };
    const auto whole = make();
    whole->train();
    const Names all{"step_3", "step_6", "step_9", "step_12", "epoch_1", "epoch_2", "final"};
    CHECK(names_in(folder / "kept") == all);
    const auto kept = whole->callback<SaveTrainingStateCallback>().state.kept;
    for (const std::string name : {"step_3", "step_6", "epoch_1", "step_9"}) {
      CAPTURE(name);
      const auto resumed = make();
      resumed->train({.resume_from_checkpoint = folder / "kept" / name});
      CHECK(toy::weights(*resumed) == toy::weights(*whole));
      CHECK(resumed->callback<SaveTrainingStateCallback>().state.kept == kept);
      CHECK(names_in(folder / "kept") == all);
    }
    // A finished training has nothing left to do.
    const auto after = make();
    CHECK(after->train({.resume_from_checkpoint = folder / "kept" / "final"}).global_step == 12);
    CHECK(toy::weights(*after) == toy::weights(*whole));
  }
}

TEST_CASE("copies take no space while the checkpoint exists, and stay when it is removed") {
  Run run;
  run.args.save_total_limit = 1;
  CHECK((run.train({.save_every_n_epochs = 1, .save_at_end = false}).size() == 5));
  CHECK(std::filesystem::hard_link_count(run.folder / "training_states" / "epoch_5" / "model.safetensors") ==
        2);
  CHECK(std::filesystem::hard_link_count(run.folder / "training_states" / "epoch_1" / "model.safetensors") ==
        1);
  CHECK(!std::filesystem::exists(run.folder / "checkpoint-3"));
}

TEST_CASE("unsupported options are refused, and existing files stay") {
  Run run;
  const auto refusal = [&](SaveTrainingStateCallback callback) -> std::string {
    return toy::fault_of<etude::Error>([&] { run.train(std::move(callback)); });
  };
  CHECK(refusal({.save_every_n_epochs = 0}) == "save_every_n_epochs is 0: must be at least 1, or unset");
  CHECK(refusal({.save_every_n_steps = -1}) ==
        "save_every_n_steps is -1: must be a whole number of steps >= 1, or a fraction of all steps between "
        "0 and 1");
  CHECK(refusal({.save_every_n_steps = "0s"}) == "save_every_n_steps is 0s: must be positive and finite");
  CHECK(refusal({.max_checkpoints = 0}) == "max_checkpoints is 0: must be at least 1, or unset");

  std::filesystem::create_directories(run.folder / "training_states" / "final");
  toy::write_text(run.folder / "training_states" / "final" / "thesis.txt", "years of work");
  CHECK(refusal({}).find("final can't be replaced or removed: it isn't a checkpoint") != std::string::npos);
  CHECK(toy::read_text(run.folder / "training_states" / "final" / "thesis.txt") == "years of work");
}

}  // namespace callbacks_save_training_state_test
