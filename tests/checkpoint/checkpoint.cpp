#include "etude/checkpoint/checkpoint.hpp"
#include "etude/loop/write_checkpoint.hpp"

#include <doctest/doctest.h>

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <locale>
#include <random>
#include <set>

#include "common/fault_of.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/checkpoint/resume.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/io/folder.hpp"
#include "etude/io/manifest.hpp"

namespace checkpoint_checkpoint_test {

using toy::names_in;

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

template <class Trainer>
torch::Tensor flat_weights(Trainer& trainer) {
  return torch::nn::utils::parameters_to_vector(trainer.model().parameters()).detach().clone();
}

/// Checks that the model equals a file, tensor for tensor.
template <class Trainer>
void check_model_is(Trainer& trainer, const std::filesystem::path& file) {
  const auto saved = etude::load_safetensors(file).tensors;
  const auto own = trainer.model().state_dict();
  REQUIRE(own.size() == 2);
  REQUIRE(saved.size() == own.size());
  for (const auto& named : own) {
    const auto found = std::ranges::find(saved, named.first, [](const auto& one) { return one.first; });
    REQUIRE(found != saved.end());
    CHECK(torch::equal(found->second, named.second));
  }
}

TEST_CASE("a checkpoint holds weights, optimizer, schedule, state and arguments") {
  const toy::Folder folder;
  etude::Trainer<> trainer(saving(folder, 3));
  trainer.train();
  CHECK(names_in(folder / "") == std::set<std::string>{"checkpoint-2", "checkpoint-4", "checkpoint-6",
                                                       "latest", "trainer_state.json"});
  CHECK(names_in(folder / "checkpoint-6") ==
        std::set<std::string>{"etude_manifest.json", "model.safetensors", "optimizer.json",
                              "optimizer.safetensors", "random_state.safetensors", "scheduler.json",
                              "trainer_state.json", "training_args.json", "training_progress.json"});
  const auto state = etude::load_trainer_state(folder / "checkpoint-4");
  CHECK(state.global_step == 4);
  CHECK(state.max_steps == 6);
  CHECK(state.epoch == doctest::Approx(4 / 3.));
  const auto saved = etude::load_safetensors(folder / "checkpoint-6/model.safetensors").tensors;
  CHECK(torch::equal(saved.at(saved[0].first == "weight" ? 0 : 1).second, trainer.model().parameters()[0]));
}

TEST_CASE("save_only_model leaves out the files that only resuming needs") {
  const toy::Folder folder;
  auto options = saving(folder, 2);
  options.args.save_only_model = true;
  etude::Trainer<>(options).train();
  CHECK(names_in(folder / "checkpoint-2") == std::set<std::string>{"etude_manifest.json", "model.safetensors",
                                                                   "trainer_state.json",
                                                                   "training_args.json"});
}

struct StopAt {
  std::int64_t step = 0;
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == step) e.control.request_stop("for today");
  }
};

TEST_CASE("a training resumed in the middle of an epoch ends with the weights of an uninterrupted one") {
  const toy::Folder folder, other;
  etude::Trainer<> whole(saving(other, 5));
  whole.train();
  etude::Trainer<StopAt> first(saving(folder, 5), StopAt{7});
  CHECK(first.train().global_step == 7);
  etude::Trainer<toy::Recorder> second(saving(folder, 5));
  const auto output = second.train({.resume_from_checkpoint = true});
  CHECK(output.global_step == 10);
  CHECK(torch::equal(flat_weights(second), flat_weights(whole)));
  CHECK(second.callback<toy::Recorder>().count("StepEnd") == 3);
  CHECK(second.callback<toy::Recorder>().names().find(" CheckpointLoaded TrainBegin EpochBegin ") !=
        std::string::npos);
  // The path of a checkpoint is used even if it is older.
  etude::Trainer<> third(saving(folder, 5));
  third.train({.resume_from_checkpoint = folder / "checkpoint-4"});
  CHECK(torch::equal(flat_weights(third), flat_weights(whole)));
}

TEST_CASE("resuming a finished training does nothing more") {
  const toy::Folder folder;
  etude::Trainer<> trainer(saving(folder, 2));
  trainer.train();
  const auto before = flat_weights(trainer);
  etude::Trainer<toy::Recorder> again(saving(folder, 2));
  CHECK(again.train({.resume_from_checkpoint = true}).global_step == 4);
  CHECK(torch::equal(flat_weights(again), before));
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
  CHECK(trainer.state().best_global_step == 2);  // the earlier one wins a tie
  CHECK(trainer.state().best_model_checkpoint == (folder / "checkpoint-2").string());
  check_model_is(trainer, folder / "checkpoint-2/model.safetensors");
}

TEST_CASE("anything but a checkpoint is refused by name") {
  const toy::Folder folder;
  const auto refusal = [&](etude::TrainOptions options) -> std::string {
    return toy::fault_of<etude::CheckpointError>([&] { etude::Trainer<>(saving(folder, 2)).train(options); });
  };
  CHECK(
      refusal({.resume_from_checkpoint = true}).starts_with("No valid checkpoint found in output directory"));
  CHECK(refusal({.resume_from_checkpoint = "/nonexistent"})
            .starts_with("Can't find a valid checkpoint at /nonexistent: "));
  const toy::Folder other;
  CHECK(etude::Trainer<>(saving(other, 2)).train().global_step == 4);
  CHECK(refusal({.resume_from_checkpoint = other / ""}) ==
        (other / "").string() +
            " isn't a checkpoint, but contains some: resume_from_checkpoint must be one of them, such as " +
            (other / "checkpoint-4").string() + ", or, with this as output_dir, true");
  std::filesystem::create_directories(folder / "checkpoint-x");
  std::filesystem::create_directories(folder / "checkpoint-3");
  std::ofstream(folder / "checkpoint-3/trainer_state.json") << "{";
  CHECK(refusal({.resume_from_checkpoint = true}) != "nothing was thrown");
  CHECK_THROWS_AS(etude::load_trainer_state(folder / "checkpoint-3"), etude::CheckpointError);
}

TEST_CASE("an unwritable folder is an error that names it, and leaves the existing checkpoint") {
  const toy::Folder folder;
  std::ofstream(folder / "file") << "not a folder";
  auto options = saving(folder, 2);
  options.args.output_dir = (folder / "file").string();
  CHECK_THROWS_AS(etude::Trainer<>(options).train(), etude::CheckpointError);
}

TEST_CASE("if_any starts from scratch without a checkpoint, and resumes with one") {
  const toy::Folder folder;
  CHECK_FALSE(etude::get_last_checkpoint(folder / "").has_value());
  etude::Trainer<toy::Recorder> first(saving(folder, 2));
  first.train({.resume_from_checkpoint = etude::if_any});
  CHECK(first.callback<toy::Recorder>().count("StepEnd") == 4);
  CHECK(etude::get_last_checkpoint(folder / "") == folder / "checkpoint-4");
  etude::Trainer<toy::Recorder> second(saving(folder, 2));
  second.train({.resume_from_checkpoint = etude::if_any});
  CHECK(second.callback<toy::Recorder>().count("StepEnd") == 0);
}

// Options of a training whose evaluations give these scores, in order; higher is better.
etude::TrainerOptions scored(const toy::Folder& folder, std::vector<double> scores) {
  auto args = toy::arguments();
  args.output_dir = folder;
  args.max_steps = static_cast<std::int64_t>(scores.size());
  args.eval_strategy = etude::IntervalStrategy::steps;
  args.eval_steps = 1;
  args.metric_for_best_model = "score";
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = 3;
  auto options = toy::options(args, 4);
  options.compute_metrics = [scores, i = 0u](const etude::EvalPrediction&) mutable {
    return etude::Metrics{{"score", scores[i++]}};
  };
  return options;
}

std::set<std::string> checkpoints_in(const toy::Folder& folder) {
  std::set<std::string> names;
  for (const auto& path : etude::checkpoint_folders(folder / "")) names.insert(path.filename());
  return names;
}

TEST_CASE("a new best is kept when no periodic checkpoint falls on it, until a better one comes") {
  const toy::Folder folder;
  auto options = scored(folder, {.1, .5, .2, .3, .9, .4, .8});
  options.args.load_best_model_at_end = true;
  etude::Trainer<> trainer(options);
  trainer.train();
  // 3 and 6 are periodic, 7 is the last, and 1 and 2 were temporarily the best.
  CHECK(checkpoints_in(folder) ==
        std::set<std::string>{"checkpoint-3", "checkpoint-5", "checkpoint-6", "checkpoint-7"});
  CHECK(trainer.state().best_model_checkpoint == (folder / "checkpoint-5").string());
  check_model_is(trainer, folder / "checkpoint-5/model.safetensors");
  CHECK(etude::read_manifest(folder / "checkpoint-5").reason == "best");
  CHECK(etude::read_manifest(folder / "checkpoint-6").reason == "periodic");
}

TEST_CASE("the best is loaded at the end even if nothing else is saved") {
  const toy::Folder folder;
  auto options = scored(folder, {.1, .5, .2});
  options.args.load_best_model_at_end = true;
  options.args.save_strategy = etude::SaveStrategy::no;
  etude::Trainer<> trainer(options);
  trainer.train();
  CHECK(checkpoints_in(folder) == std::set<std::string>{"checkpoint-2"});
  CHECK(trainer.state().best_global_step == 2);
}

TEST_CASE("NaN is never best, and a tie keeps the earlier") {
  const toy::Folder folder;
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  etude::Trainer<> trainer(scored(folder, {nan, .5, .5, nan, .4}));
  trainer.train();
  CHECK(trainer.state().best_metric == .5);
  CHECK(trainer.state().best_global_step == 2);
}

TEST_CASE("rotation keeps the newest and the best, and never touches other runs' files") {
  const toy::Folder folder;
  std::filesystem::create_directories(folder / "checkpoint-1");  // another program's
  std::ofstream(folder / "checkpoint-1/notes.txt") << "mine";
  auto other = scored(folder, {.1});
  other.args.save_steps = 1;
  other.args.max_steps = 2;
  other.args.eval_strategy = etude::IntervalStrategy::no;
  {
    auto run = other;
    run.args.save_steps = 2;
    etude::Trainer<>(run).train();  // another Etude run: checkpoint-2
  }
  auto options = scored(folder, {.1, .2, .3, .9, .4, .5, .6, .7});
  options.args.save_steps = 1;
  options.args.save_total_limit = 2;
  etude::Trainer<> trainer(options);
  trainer.train();
  CHECK(checkpoints_in(folder) == std::set<std::string>{"checkpoint-4", "checkpoint-8"});
  CHECK(std::filesystem::exists(folder / "checkpoint-1.other/notes.txt"));
  const auto moved = [&] {
    for (const auto& name : names_in(folder / ""))
      if (name.starts_with("checkpoint-2.")) return folder / name;
    return folder / "none";
  }();
  CHECK(etude::read_manifest(moved).global_step == 2);
  CHECK(std::filesystem::read_symlink(folder / "latest") == "checkpoint-8");
}

TEST_CASE("another run's checkpoint stays unless its name is needed") {
  const toy::Folder folder;
  auto first = scored(folder, {.1, .2, .3, .4, .5});
  first.args.save_steps = 5;
  etude::Trainer<>(first).train();
  auto second = scored(folder, {.1, .2, .3, .4});
  second.args.save_steps = 1;
  second.args.save_total_limit = 1;
  etude::Trainer<>(second).train();
  CHECK(checkpoints_in(folder) == std::set<std::string>{"checkpoint-4", "checkpoint-5"});
  // The newest is the one that was written last, whatever its number.
  etude::Trainer<> again(scored(folder, {.1, .2, .3, .4}));
  CHECK(again.train({.resume_from_checkpoint = true}).global_step == 4);
}

TEST_CASE("resuming continues the run: its old checkpoints rotate, and abandoned ones are overtaken") {
  const toy::Folder folder;
  auto options = scored(folder, {.1, .2, .3, .4, .5, .6});
  options.args.metric_for_best_model = {};
  options.args.save_steps = 1;
  etude::Trainer<>(options).train();
  options.args.save_total_limit = 2;
  etude::Trainer<StopAt> branch(options, StopAt{4});
  branch.train({.resume_from_checkpoint = folder / "checkpoint-2"});
  CHECK(checkpoints_in(folder) == std::set<std::string>{"checkpoint-3", "checkpoint-4"});
  options.compute_metrics = {};
  etude::Trainer<toy::Recorder> rest(options);
  rest.train({.resume_from_checkpoint = true});
  CHECK(rest.callback<toy::Recorder>().count("StepEnd") == 2);
}

// Records each training batch's examples, by their first number.
struct Seen {
  std::vector<std::vector<double>> batches = {};
  void on(const etude::BatchFetched& e) {
    const auto x = e.batch.inputs[0].to(torch::kDouble).contiguous();
    batches.emplace_back(x.data_ptr<double>(), x.data_ptr<double>() + x.numel());
  }
  std::vector<double> all() const {
    std::vector<double> result;
    for (const auto& batch : batches) result.insert(result.end(), batch.begin(), batch.end());
    return result;
  }
};

TEST_CASE("with another batch size and accumulation, training resumes at the same example") {
  const toy::Folder folder;
  auto options = saving(folder, 22);
  options.args.per_device_train_batch_size = 2;
  options.args.gradient_accumulation_steps = 2;
  options.args.save_steps = 3;
  etude::Trainer<Seen> whole(options);
  CHECK(whole.train().global_step == 12);  // 11 batches, 6 updates an epoch
  const auto expected = whole.callback<Seen>().all();

  options.args.per_device_train_batch_size = 5;
  options.args.gradient_accumulation_steps = 1;
  options.args.output_dir = (folder / "other").string();
  etude::Trainer<Seen> rest(options);
  const auto output = rest.train({.resume_from_checkpoint = folder / "checkpoint-3"});
  CHECK(rest.callback<Seen>().all() == std::vector(expected.begin() + 12, expected.end()));
  CHECK(rest.callback<Seen>().batches.front().size() == 5);
  // 10 examples of the first epoch are left, which take 2 updates; then come 5.
  CHECK(output.global_step == 3 + 2 + 5);
  CHECK(rest.state().epoch == 2);
  CHECK(rest.state().max_steps == 10);

  options.args.max_steps = 6;
  etude::Trainer<Seen> short_of_it(options);
  CHECK(short_of_it.train({.resume_from_checkpoint = folder / "checkpoint-3"}).global_step == 6);
}

TEST_CASE("new arguments win over saved ones") {
  const toy::Folder folder;
  auto options = saving(folder, 3);
  etude::Trainer<StopAt>(options, StopAt{2}).train();
  options.args.learning_rate = 0.5;
  options.args.num_train_epochs = 4;
  struct Rates {
    std::vector<double> rates = {};
    void on(const etude::SchedulerStep& e) { rates.push_back(e.learning_rate); }
  };
  etude::Trainer<Rates> trainer(options);
  CHECK(trainer.train({.resume_from_checkpoint = true}).global_step == 12);
  // The schedule falls linearly to 0 over twelve steps.
  CHECK(trainer.callback<Rates>().rates.at(0) == doctest::Approx(0.5 * 9 / 12));
  CHECK(trainer.callback<Rates>().rates.at(8) == doctest::Approx(0.5 * 1 / 12));
}

TEST_CASE("a stopped training continues when resumed; a killed one stops where it would have") {
  const toy::Folder folder;
  auto options = saving(folder, 4);
  options.args.save_steps = 1;
  etude::Trainer<StopAt> first(options, StopAt{3});
  CHECK(first.train().stop_reason == "for today");
  {
    etude::Trainer<> second(options);
    CHECK(second.train({.resume_from_checkpoint = folder / "checkpoint-3"}).global_step == 8);
  }
  // Pretends that the run was killed after it wrote the checkpoint, in which the request to stop is pending,
  // and before it ended.
  std::filesystem::remove(folder / "trainer_state.json");
  etude::Trainer<> third(options);
  const auto output = third.train({.resume_from_checkpoint = folder / "checkpoint-3"});
  CHECK(output.global_step == 3);
  CHECK(output.stop_reason == "for today");
}

TEST_CASE("early stopping stays reached, unless its patience changes") {
  const toy::Folder folder;
  const std::vector<double> scores{.9, .5, .5, .5, .5, .5};
  auto options = scored(folder, scores);
  options.args.save_steps = 1;
  const auto train = [&](std::int64_t patience, bool resume) {
    auto again = options;
    if (resume)
      again.compute_metrics = [](const etude::EvalPrediction&) { return etude::Metrics{{"score", .5}}; };
    etude::Trainer<etude::EarlyStoppingCallback> trainer(
        again, etude::EarlyStoppingCallback{.early_stopping_patience = patience});
    return trainer.train({.resume_from_checkpoint = resume}).global_step;
  };
  CHECK(train(2, false) == 3);
  CHECK(train(2, true) == 3);
  CHECK(train(4, true) == 5);
}

TEST_CASE("another program's checkpoint is accepted by its path, with the files that it has") {
  const toy::Folder folder;
  auto options = saving(folder, 4);
  options.args.save_only_model = true;
  etude::Trainer<>(options).train();
  const auto path = folder / "checkpoint-2";
  for (const char* name : {"etude_manifest.json", "training_args.json"}) std::filesystem::remove(path / name);
  etude::Trainer<toy::Recorder> trainer(saving(folder, 4));
  trainer.train({.resume_from_checkpoint = path});
  CHECK(trainer.callback<toy::Recorder>().count("StepEnd") == 6);
  CHECK(trainer.lr_scheduler()->step_count() == 8);
}

TEST_CASE("the complete state is written at the end, including the summary") {
  const toy::Folder folder;
  etude::Trainer<> trainer(saving(folder, 2));
  trainer.train();
  const auto state = etude::load_trainer_state(folder / "");
  CHECK(state.global_step == 4);
  CHECK(state.log_history.back().contains("train_loss"));
  CHECK(state.log_history == trainer.state().log_history);
}

TEST_CASE("files that a processing class writes are part of the checkpoint") {
  struct Words {
    void save(const std::filesystem::path& folder) const {
      std::filesystem::create_directories(folder / "words");
      std::ofstream(folder / "words/list.txt") << "a b c";
    }
  };
  const toy::Folder folder;
  auto options = saving(folder, 2);
  options.processing_class = Words{};
  etude::Trainer<>(options).train();
  etude::FolderReader reader(folder / "checkpoint-2");
  CHECK(reader.text("words/list.txt") == "a b c");
}

TEST_CASE("generators go into checkpoints: LibTorch's, engines of <random>, and others by two methods") {
  struct Own {
    int value = 0;
    std::string state() const { return std::to_string(value); }
    void load_state(const std::string& text) { value = std::stoi(text); }
  } own{7};
  std::mt19937_64 engine(3);
  auto generator = at::detail::createCPUGenerator(5);
  const etude::StatefulGenerators generators{{"own", &own}, {"engine", &engine}, {"torch", generator}};
  const auto state = etude::random_state(generators);
  const auto number = engine();
  const auto drawn = torch::rand({4}, generator), global = torch::rand({4});
  own.value = 0;
  CHECK(etude::load_random_state(state, generators).empty());
  CHECK(own.value == 7);
  CHECK(engine() == number);
  CHECK(torch::equal(torch::rand({4}, generator), drawn));
  CHECK(torch::equal(torch::rand({4}), global));

  CHECK(etude::load_random_state(state, {}).size() == 1);
  CHECK(etude::load_random_state({}, generators).size() == 4);
  auto wrong = state;
  wrong["cpu"] = torch::zeros({3}, torch::kByte);
  wrong["generators.engine"] = etude::detail::bytes_of("no numbers");
  CHECK(etude::load_random_state(wrong, generators).size() == 2);
  CHECK_THROWS_AS(etude::StatefulGenerator(static_cast<std::mt19937*>(nullptr)), etude::ArgumentError);
}

TEST_CASE("the state of a <random> engine is the same in every locale") {
  struct Grouping : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  std::mt19937_64 engine(3);
  const etude::StatefulGenerators generators{{"engine", &engine}};
  const auto plain = etude::random_state(generators);
  const auto before = std::locale::global(std::locale(std::locale(), new Grouping));
  const auto grouped = etude::random_state(generators);
  const auto number = engine();
  const auto problems = etude::load_random_state(plain, generators);
  std::locale::global(before);
  CHECK(torch::equal(plain.at("generators.engine"), grouped.at("generators.engine")));
  CHECK(problems.empty());
  CHECK(engine() == number);
}

TEST_CASE("only folders named like this are checkpoints") {
  CHECK(etude::checkpoint_step("out/checkpoint-12") == 12);
  CHECK_FALSE(etude::checkpoint_step("out/checkpoint-").has_value());
  CHECK_FALSE(etude::checkpoint_step("out/checkpoint-12a").has_value());
  CHECK_FALSE(etude::checkpoint_step("out/.checkpoint-12.partial").has_value());
}

}  // namespace checkpoint_checkpoint_test
