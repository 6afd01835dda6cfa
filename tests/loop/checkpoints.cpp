#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "common/fault_of.hpp"
#include "common/interrupting.hpp"
#include "common/printed.hpp"
#include "common/quick_files.hpp"
#include "common/shuffling.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/checkpoint/resume.hpp"
#include "etude/checkpoint/resume_point.hpp"
#include "etude/dispatch/filters.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/io/manifest.hpp"
#include "etude/optim/rules/sgd.hpp"

namespace loop_checkpoints_test {

using etude::IntervalStrategy;
using etude::SaveStrategy;

etude::TrainingArguments saving(const std::string& folder) {
  auto args = toy::arguments();
  args.output_dir = folder;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 1;
  args.learning_rate = 0.01;
  return args;
}

etude::TrainerOptions with(const etude::TrainingArguments& args, std::int64_t examples) {
  auto options = toy::options(args, examples);
  options.file_system = std::make_shared<toy::QuickFiles>();
  return options;
}

struct Fault : std::runtime_error {
  Fault() : std::runtime_error("a fault") {}
};

struct AtStep {
  std::int64_t step = -1;
  std::function<void()> act = {};
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == step) act();
  }
};

// Simulates a killed process: nothing is saved on the way out.
void train_until(const etude::TrainerOptions& options, std::int64_t step,
                 const etude::TrainOptions& how = {}) {
  etude::Trainer<AtStep> trainer(options, AtStep{step, [] { throw Fault(); }});
  CHECK_THROWS_AS(trainer.train(how), Fault);
}

float weight_in(const std::filesystem::path& checkpoint) {
  for (const auto& [name, tensor] : etude::load_model_files(checkpoint))
    if (name == "weight") return tensor.item<float>();
  return NAN;
}

template <class Trainer>
float weight_of(Trainer& trainer) {
  return trainer.model().named_parameters().front().second.template item<float>();
}

TEST_CASE("a training with a changed batch size may be killed again") {
  const toy::Folder folder;
  auto args = saving(folder);
  args.num_train_epochs = 3;
  train_until(with(args, 8), 5);  // checkpoint-4 of 24 is written
  args.per_device_train_batch_size = 2;
  const auto options = with(args, 8);
  train_until(options, 7, {.resume_from_checkpoint = true});
  etude::Trainer<> trainer(options);
  // Four updates of one example, two of two for the rest of the epoch, and four in each of the other two
  // epochs.
  CHECK(trainer.train({.resume_from_checkpoint = true}).global_step == 14);
  CHECK(trainer.state().max_steps == 14);
  CHECK(trainer.state().epoch == 3);
}

// Records which of twelve points the model gets, in order.
struct Seen {
  std::vector<std::int64_t> points = {};
  void on(const etude::ForwardBegin& e) {
    points.push_back(std::llround(e.batch.inputs[0].item<double>() * 12));
  }
};

struct Run {
  std::vector<std::int64_t> points;
  float weight, bias;
};

Run run(const etude::TrainingArguments& args, const etude::TrainOptions& how) {
  etude::Trainer<Seen> trainer(with(args, 12));
  trainer.train(how);
  return {trainer.callback<Seen>().points, weight_of(trainer),
          trainer.model().named_parameters().back().second.item<float>()};
}

etude::TrainingArguments two_epochs(const std::string& folder) {
  auto args = saving(folder);
  args.learning_rate = 0.1;
  args.num_train_epochs = 2;
  args.save_steps = 5;
  return args;
}

TEST_CASE("a checkpoint names the order of its examples, and unknown names are refused") {
  const toy::Folder folder;
  const auto whole = run(two_epochs(folder), {});
  // The order of the first epoch, worked out in Python from the definition of KeyedPermutation.
  CHECK(std::vector(whole.points.begin(), whole.points.begin() + 12) ==
        std::vector<std::int64_t>{5, 8, 1, 2, 9, 3, 4, 7, 0, 10, 11, 6});
  const auto path = folder / "checkpoint-10", progress = path / "training_progress.json";
  const auto rest = run(two_epochs(folder), {.resume_from_checkpoint = path});
  CHECK(rest.points == std::vector(whole.points.begin() + 10, whole.points.end()));
  CHECK(rest.weight == whole.weight);

  auto text = toy::read_text(progress);
  const std::string name = "\"shuffle_order\": \"feistel\"";
  REQUIRE(text.find(name) != std::string::npos);
  text.replace(text.find(name), name.size(), "\"shuffle_order\": \"sorted\"");
  toy::write_text(progress, text);
  std::filesystem::remove(path / etude::manifest_file);  // its checksum would reveal the change
  CHECK(
      toy::contains(toy::fault_of<etude::CheckpointError>([&] {
                      etude::Trainer<>(with(two_epochs(folder), 12)).train({.resume_from_checkpoint = path});
                    }),
                    "shuffle_order is \"sorted\": must be one of feistel"));
}

TEST_CASE("a checkpoint that doesn't say how far the training is can't be resumed") {
  const toy::Folder folder;
  run(two_epochs(folder), {});
  const auto path = folder / "checkpoint-10", progress = path / "training_progress.json";
  auto text = toy::read_text(progress);
  REQUIRE(toy::contains(text, "\"loop\""));
  text.replace(text.find("\"loop\""), 6, "\"phase\"");
  toy::write_text(progress, text);
  std::filesystem::remove(path / etude::manifest_file);  // its checksum would reveal the change
  CHECK(toy::fault_of<etude::CheckpointError>([&] {
          etude::Trainer<>(with(two_epochs(folder), 12)).train({.resume_from_checkpoint = path});
        }) == progress.string() + " has no loop: must have the stages of the training and its epoch");
}

// Changes a number in a checkpoint, and removes the manifest, whose checksum would reveal it.
void spoil(const std::filesystem::path& checkpoint, const std::string& file, const std::string& key,
           const std::string& value) {
  std::filesystem::remove(checkpoint / etude::manifest_file);
  auto text = toy::read_text(checkpoint / file);
  const auto at = text.find("\"" + key + "\": ");
  REQUIRE(at != text.npos);
  const auto begin = at + key.size() + 4;
  text.replace(begin, text.find_first_of(",\n", begin) - begin, value);
  toy::write_text(checkpoint / file, text);
}

TEST_CASE("a checkpoint's largest numbers don't make the next one unreadable") {
  const std::string largest = "9223372036854775807";
  const toy::Folder folder, next;
  auto args = saving(folder);
  args.num_train_epochs = 2;
  args.include_num_input_tokens_seen = etude::InputTokens::all;
  train_until(with(args, 4), 3);
  const auto checkpoint = folder / "checkpoint-2";
  spoil(checkpoint, "trainer_state.json", "num_input_tokens_seen", largest);
  for (const auto* key : {"padded_examples", "filtered"})
    spoil(checkpoint, "training_progress.json", key, largest);
  args.output_dir = next;
  auto options = with(args, 4);
  etude::Trainer<>(options).train({.resume_from_checkpoint = checkpoint});
  args.num_train_epochs = 3;
  etude::Trainer<> last(with(args, 4));
  CHECK(last.train({.resume_from_checkpoint = next / "checkpoint-8"}).global_step == 12);
  CHECK(last.state().num_input_tokens_seen >= std::int64_t{1} << 62);
}

TEST_CASE("more steps than can be counted are refused, also from a checkpoint") {
  const toy::Folder folder;
  const auto args = saving(folder);
  train_until(with(args, 4), 3);
  const auto checkpoint = folder / "checkpoint-2";
  spoil(checkpoint, "training_progress.json", "extra_steps", "1000000000000000");
  const auto options = with(args, 4);
  CHECK(toy::contains(
      toy::fault_of([&] { etude::Trainer<>(options).train({.resume_from_checkpoint = checkpoint}); }),
      "extra_steps is 1000000000000000"));
}

TEST_CASE("a signal is handled while a sampler is advanced to a checkpoint's position") {
  struct Counting : torch::data::samplers::SequentialSampler {
    using SequentialSampler::SequentialSampler;
    int calls = 0, signal_at = -1;
    torch::optional<std::vector<std::size_t>> next(std::size_t count) override {
      if (++calls == signal_at) ::raise(SIGTERM);
      return SequentialSampler::next(count);
    }
  };
  const toy::OwnHandler handler;
  const toy::Folder folder;
  auto args = saving(folder);
  const auto options = with(args, 100);
  train_until(options, 51);
  auto sampled = options;
  const auto sampler = std::make_shared<Counting>(100);
  sampled.train_sampler = sampler;
  etude::Trainer<> trainer(sampled);
  sampler->calls = 0;
  sampler->signal_at = 103;  // The loader has counted 100 examples and found the end.
  CHECK_THROWS_AS(trainer.train({.resume_from_checkpoint = true}), etude::Interrupted);
  CHECK(sampler->calls == sampler->signal_at);
}

TEST_CASE("a stateful sampler continues with the next epoch from a checkpoint at an epoch's end") {
  const toy::Folder folder, other;
  const auto order = [](const std::string& output_dir, const etude::TrainOptions& how) {
    const auto sampler = std::make_shared<toy::Shuffling>(6);
    auto args = saving(output_dir);
    args.save_strategy = SaveStrategy::epoch;
    args.max_steps = 12;
    auto options = with(args, 6);
    options.train_sampler = sampler;
    etude::Trainer<>(options).train(how);
    return sampler->seen;
  };
  const auto whole = order(folder, {});
  const auto rest = order(other, {.resume_from_checkpoint = folder / "checkpoint-6"});
  CHECK(whole.size() == 12);
  CHECK(rest == std::vector(whole.begin() + 6, whole.end()));
}

TEST_CASE("an exception after an epoch's last step doesn't undo its end") {
  struct Pushing {
    void on(const etude::Save& e) {
      if (e.state.global_step == 3) throw Fault();
    }
  };
  const toy::Folder folder;
  auto args = saving(folder);
  args.save_strategy = SaveStrategy::epoch;
  args.eval_strategy = IntervalStrategy::epoch;
  args.num_train_epochs = 2;
  args.save_on_exception = true;
  etude::Trainer<Pushing> trainer(with(args, 3));
  CHECK_THROWS_AS(trainer.train(), Fault);
  CHECK(etude::load_trainer_state(folder / "checkpoint-3").log_history.size() == 1);
}

template <class Event>
struct StopIn {
  void on(const Event& e) {
    if (e.state.global_step == 2) throw etude::StopTraining("enough");
  }
};

TEST_CASE_TEMPLATE("a stop in the middle of an update waits for its end", Event, etude::OptimizerStep,
                   etude::SchedulerStep) {
  const toy::Folder folder;
  auto args = saving(folder);
  args.save_steps = 100;
  const auto options = with(args, 6);
  {
    etude::Trainer<StopIn<Event>> trainer(options);
    const auto output = trainer.train();
    CHECK(output.global_step == 3);
    CHECK(output.stop_reason == "enough");
  }
  std::vector<std::int64_t> steps;
  for (const auto& [name, tensor] :
       etude::load_safetensors(folder / "checkpoint-3/optimizer.safetensors").tensors)
    if (name.ends_with(".step")) steps.push_back(tensor.template item<std::int64_t>());
  CHECK(steps == std::vector<std::int64_t>{3, 3});
  etude::Trainer<> rest(options);
  CHECK(rest.train({.resume_from_checkpoint = true}).global_step == 6);
}

TEST_CASE("a periodic checkpoint stays when a better one is saved") {
  const toy::Folder folder;
  auto args = saving(folder);
  args.save_steps = 3;
  args.eval_strategy = IntervalStrategy::epoch;
  args.load_best_model_at_end = true;
  args.num_train_epochs = 3;
  etude::Trainer<>(with(args, 3)).train();
  for (const char* name : {"checkpoint-3", "checkpoint-6", "checkpoint-9"})
    CHECK(std::filesystem::exists(folder / name));
}

TEST_CASE("a user's own checkpoint isn't mistaken for a former best") {
  const toy::Folder folder;
  auto args = saving(folder);
  args.save_steps = 100;
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 2;
  args.load_best_model_at_end = true;
  etude::Trainer<AtStep> trainer(with(args, 8));
  trainer.callback<AtStep>() = {3, [&] { trainer.save_checkpoint(); }};
  trainer.train();
  CHECK(etude::read_manifest(folder / "checkpoint-3").reason == "periodic");
}

TEST_CASE("a signal in an evaluation that a callback began waits for the enclosing event") {
  struct Evaluating {
    etude::Trainer<Evaluating>* trainer = nullptr;
    int seen = 0;
    void on(const etude::BackwardEnd& e) {
      if (!trainer || e.state.global_step != 1 || ++seen != 2) return;
      ::raise(SIGTERM);
      trainer->evaluate();
    }
  };
  const toy::OwnHandler handler;
  const auto weight = [](const std::string& folder, bool interrupt) {
    auto args = saving(folder);
    args.gradient_accumulation_steps = 3;
    etude::Trainer<Evaluating> trainer(with(args, 9));
    if (interrupt) trainer.callback<Evaluating>().trainer = &trainer;
    const etude::TrainOptions how{.resume_from_checkpoint = etude::if_any};
    if (interrupt)
      CHECK_THROWS_AS(trainer.train(how), etude::Interrupted);
    else
      trainer.train(how);
    return weight_of(trainer);
  };
  const toy::Folder whole, broken;
  weight(broken, true);
  CHECK(weight(broken, false) == weight(whole, false));
}

TEST_CASE("nothing after the last checkpoint writes one: the weights may be the best ones") {
  struct Ending {
    etude::Trainer<Ending>* trainer = nullptr;
    bool throws = false;
    void on(const etude::TrainEnd&) {
      if (throws) throw Fault();
      if (!trainer) return;
      ::raise(SIGTERM);
      trainer->evaluate();
    }
  };
  const toy::OwnHandler handler;
  const auto last_weight = [](bool interrupt, bool fault) {
    const toy::Folder folder;
    auto args = saving(folder);
    args.learning_rate = 5;
    args.optim = etude::OptimizerNames::sgd;
    args.eval_strategy = IntervalStrategy::steps;
    args.eval_steps = 1;
    args.load_best_model_at_end = true;
    args.save_on_exception = true;
    etude::Trainer<Ending> trainer(with(args, 6));
    if (interrupt) trainer.callback<Ending>().trainer = &trainer;
    trainer.callback<Ending>().throws = fault;
    if (interrupt)
      CHECK_THROWS_AS(trainer.train(), etude::Interrupted);
    else if (fault)
      CHECK_THROWS_AS(trainer.train(), Fault);
    else
      trainer.train();
    CHECK(weight_of(trainer) != weight_in(folder / "checkpoint-6"));
    return weight_in(folder / "checkpoint-6");
  };
  const auto right = last_weight(false, false);
  CHECK(last_weight(true, false) == right);
  CHECK(last_weight(false, true) == right);
}

TEST_CASE("a callback that throws in TrainBegin leaves the resumed checkpoint unchanged") {
  struct Failing {
    void on(const etude::TrainBegin&) { throw Fault(); }
  };
  const toy::Folder folder;
  auto args = saving(folder);
  args.save_on_exception = true;
  etude::Trainer<>(with(args, 3)).train();
  const auto before = etude::read_manifest(folder / "checkpoint-3");
  etude::Trainer<Failing> trainer(with(args, 6));
  CHECK_THROWS_AS(trainer.train({.resume_from_checkpoint = true}), Fault);
  CHECK(etude::read_manifest(folder / "checkpoint-3") == before);
}

TEST_CASE("a checkpoint that a callback requests belongs to a run, even if nothing else is saved") {
  const toy::Folder folder;
  auto args = saving(folder);
  etude::Trainer<>(with(args, 4)).train();
  args.save_strategy = SaveStrategy::no;
  etude::Trainer<AtStep> trainer(with(args, 9));
  trainer.callback<AtStep>() = {7, [&] { trainer.control().should_save = true; }};
  trainer.train();
  const auto old = etude::read_manifest(folder / "checkpoint-4"),
             fresh = etude::read_manifest(folder / "checkpoint-7");
  CHECK_FALSE(fresh.run.empty());
  CHECK(fresh.run != old.run);
  CHECK(fresh.serial > old.serial);
}

TEST_CASE("early stopping keeps evaluations from before the first step") {
  const toy::Folder folder, other;
  auto args = saving(folder);
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 1;
  args.eval_on_start = true;
  args.metric_for_best_model = "loss";
  args.learning_rate = 50;  // it gets worse and worse
  args.optim = etude::OptimizerNames::sgd;
  args.save_steps = 100;
  const etude::EarlyStoppingCallback stopping{
      .early_stopping_patience = 2,
      .early_stopping_threshold_kind = etude::EarlyStoppingThreshold::cumulative};
  etude::Trainer<etude::EarlyStoppingCallback> whole(with(args, 6), stopping);
  CHECK(whole.train().global_step == 2);
  args.output_dir = other;
  etude::Trainer<etude::EarlyStoppingCallback> rest(with(args, 6), stopping);
  CHECK(rest.train({.resume_from_checkpoint = folder / "checkpoint-0"}).global_step == 2);
}

TEST_CASE("every callback receives Save for a checkpoint, killed or not") {
  struct Saves {
    std::vector<std::string> heard = {};
    void on(const etude::Save& e) { heard.push_back(e.checkpoint.filename()); }
  };
  const toy::Folder folder;
  auto options = with(saving(folder), 4);
  etude::Trainer<>(options).train();
  etude::Trainer<Saves> trainer(options);
  trainer.train({.resume_from_checkpoint = folder / "checkpoint-2"});
  CHECK(trainer.callback<Saves>().heard ==
        std::vector<std::string>{"checkpoint-2", "checkpoint-3", "checkpoint-4"});
}

TEST_CASE("a partial accumulation that is stopped before it continues restarts") {
  struct Signal {
    bool on_ = false;
    void on(const etude::SubstepEnd& e) {
      if (on_ && e.state.global_step == 2) ::raise(SIGTERM);
    }
  };
  struct Stopping {
    void on(const etude::TrainBegin& e) { e.control.request_stop("no time"); }
  };
  const toy::OwnHandler handler;
  const toy::Folder folder, other;
  auto args = saving(folder);
  args.gradient_accumulation_steps = 3;
  args.save_steps = 100;
  {
    etude::Trainer<Signal> trainer(with(args, 12), Signal{true});
    CHECK_THROWS_AS(trainer.train(), etude::Interrupted);
  }
  etude::Trainer<Stopping>(with(args, 12)).train({.resume_from_checkpoint = true});
  etude::Trainer<> rest(with(args, 12));
  rest.train({.resume_from_checkpoint = true});
  args.output_dir = other;
  etude::Trainer<> whole(with(args, 12));
  whole.train();
  CHECK(weight_of(rest) == weight_of(whole));
}

TEST_CASE("a partial accumulation after the last remaining epoch doesn't corrupt the next checkpoint") {
  struct Signal {
    void on(const etude::SubstepEnd& e) {
      if (e.state.global_step == 6) ::raise(SIGTERM);
    }
  };
  struct Saving {
    void on(const etude::TrainBegin& e) { e.control.should_save = true; }
  };
  const toy::OwnHandler handler;
  const toy::Folder folder, other;
  auto args = saving(folder);
  args.gradient_accumulation_steps = 3;
  args.save_steps = 100;
  args.num_train_epochs = 3;
  {
    etude::Trainer<Signal> trainer(with(args, 12));
    CHECK_THROWS_AS(trainer.train(), etude::Interrupted);
  }
  auto fewer = args;
  fewer.num_train_epochs = 1;
  CHECK(etude::Trainer<Saving>(with(fewer, 12)).train({.resume_from_checkpoint = true}).global_step == 6);
  etude::Trainer<> rest(with(args, 12));
  CHECK(rest.train({.resume_from_checkpoint = true}).global_step == 12);
  args.output_dir = other;
  etude::Trainer<> whole(with(args, 12));
  whole.train();
  CHECK(weight_of(rest) == weight_of(whole));
}

/// Adds the sum of all its inputs so far to its output.
struct CountingImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    if (is_training()) seen.add_(x.sum());
    return x * weight + seen;
  }
  torch::Tensor weight = register_parameter("weight", torch::zeros({1}));
  torch::Tensor seen = register_buffer("seen", torch::zeros({1}));
};
TORCH_MODULE(Counting);

void disturb(const etude::Context& e) {
  const torch::NoGradGuard no_grad;
  for (auto& [name, tensor] : e.model.state_dict()) tensor.mul_(0.5);
  e.optimizer->load_state({});
  e.optimizer->param_groups()[0].weight_decay = 0;
}

/// Changes the model and the optimizer when an epoch begins and, with `steps`, when a step begins.
struct Disturbs {
  bool steps = false;
  void on(const etude::EpochBegin& e) { disturb(e); }
  void on(const etude::StepBegin& e) {
    if (steps) disturb(e);
  }
  void on(const etude::StepEnd& e) { e.optimizer->param_groups()[0].weight_decay += 0.1; }
};

TEST_CASE("a handler's changes to model and optimizer at an epoch's begin aren't repeated by a resume") {
  struct Signal {
    std::int64_t step = -1;
    void on(const etude::SubstepEnd& e) {
      if (e.state.global_step == step) ::raise(SIGTERM);
    }
  };
  const toy::OwnHandler handler;
  for (const bool steps : {false, true}) {
    CAPTURE(steps);
    const toy::Folder folder, other;
    auto args = saving(other);
    args.num_train_epochs = 2;
    args.gradient_accumulation_steps = 2;
    const auto options = [&](const std::string& output_dir) {
      args.output_dir = output_dir;
      auto result = with(args, 8);
      result.model = Counting();
      return result;
    };
    const auto outcome = [](auto& trainer) {
      std::string text = trainer.optimizer()->options_state().dump();
      for (const auto& [name, tensor] : trainer.model().state_dict())
        text += fmt::format(" {}={}", name, tensor.template item<double>());
      for (const auto& [name, tensor] : trainer.optimizer()->state())
        text += fmt::format(" {}={}", name, tensor.template item<double>());
      return text;
    };
    etude::Trainer<Disturbs, Signal> whole(options(other), Disturbs{steps});
    CHECK(whole.train().global_step == 8);
    for (const int step : {2, 4, 6}) {  // in the middle of the first epoch, at its end, in the second
      CAPTURE(step);
      etude::Trainer<Disturbs, Signal> resumed(options(folder), Disturbs{steps});
      resumed.train({.resume_from_checkpoint = other / fmt::format("checkpoint-{}", step)});
      CHECK(outcome(resumed) == outcome(whole));
    }
    // In the middle of an accumulation.
    const toy::Folder half;
    CHECK_THROWS_AS((etude::Trainer<Disturbs, Signal>(options(half), Disturbs{steps}, Signal{5}).train()),
                    etude::Interrupted);
    etude::Trainer<Disturbs, Signal> resumed(options(half), Disturbs{steps});
    resumed.train({.resume_from_checkpoint = true});
    CHECK(outcome(resumed) == outcome(whole));
  }
}

TEST_CASE("TrainBegin and EpochBegin say whether they are raised again") {
  struct Resumed {
    std::vector<std::string> heard = {};
    void on(const etude::TrainBegin& e) { add("TrainBegin", e.is_resumed); }
    void on(const etude::EpochBegin& e) { add("EpochBegin", e.is_resumed); }
    void add(const std::string& event, bool again) { heard.push_back(event + (again ? " again" : "")); }
  };
  const toy::Folder folder, other;
  auto args = saving(folder);
  args.num_train_epochs = 2;
  const auto heard = [&](const etude::TrainOptions& how) {
    etude::Trainer<Resumed> trainer(with(args, 4));
    trainer.train(how);
    return fmt::format("{}", fmt::join(trainer.callback<Resumed>().heard, ", "));
  };
  CHECK(heard({.resume_from_checkpoint = etude::if_any}) == "TrainBegin, EpochBegin, EpochBegin");
  args.output_dir = other;
  CHECK(heard({.resume_from_checkpoint = folder / "checkpoint-2"}) ==
        "TrainBegin again, EpochBegin again, EpochBegin");
  CHECK(heard({.resume_from_checkpoint = folder / "checkpoint-4"}) ==
        "TrainBegin again, EpochBegin again, EpochBegin");  // only the first epoch's end remains
  CHECK(heard({.resume_from_checkpoint = folder / "checkpoint-6"}) == "TrainBegin again, EpochBegin again");
}

TEST_CASE("a request at a step is honoured for that step, after an exception too") {
  struct Tracker {
    void on(const etude::Log& e) {
      if (e.state.global_step == 2) throw Fault();
    }
  };
  const toy::Folder folder;
  auto args = saving(folder);
  args.save_steps = 100;
  args.save_on_exception = true;
  args.logging_strategy = IntervalStrategy::steps;
  args.logging_steps = 1;
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 2;
  {
    etude::Trainer<Tracker> trainer(with(args, 5));
    CHECK_THROWS_AS(trainer.train(), Fault);
  }
  etude::Trainer<> rest(with(args, 5));
  rest.train({.resume_from_checkpoint = true});
  std::vector<int> evaluated;
  for (const auto& line : rest.state().log_history)
    if (line.contains("eval_loss")) evaluated.push_back(line.at("step").get<int>());
  CHECK(evaluated == std::vector{2, 4, 5});
}

TEST_CASE("a checkpoint can't be written in the middle of an update, and numbers in one are checked") {
  struct Saving {
    etude::Trainer<Saving>* trainer = nullptr;
    void on(const etude::OptimizerStep&) { trainer->save_checkpoint(); }
  };
  const toy::Folder folder;
  etude::Trainer<Saving> trainer(with(saving(folder), 2));
  trainer.callback<Saving>().trainer = &trainer;
  CHECK_THROWS_AS(trainer.train(), etude::Error);

  etude::ResumePoint point;
  point.progress.emplace();
  etude::detail::check_place(point);
  for (const auto& spoil : std::vector<std::function<void(etude::ResumePoint&)>>{
           [](auto& p) { p.state.global_step = -1; },
           [](auto& p) { p.state.global_step = std::int64_t{1} << 60; },
           [](auto& p) { p.progress->position.epoch = -1; },
           [](auto& p) { p.progress->position.examples = std::int64_t{1} << 60; },
           [](auto& p) { p.progress->position.micro_batches = -1; },
           [](auto& p) { p.progress->position.micro_batches = 1; },
           [](auto& p) { p.progress->position.padded_examples = -1; },
           [](auto& p) { p.progress->extra_steps = std::numeric_limits<std::int64_t>::min(); },
           [](auto& p) { p.progress->extra_epochs = std::int64_t{1} << 60; },
           [](auto& p) { p.state.epoch = 1e300; }, [](auto& p) { p.state.epoch = NAN; },
           [](auto& p) { p.state.num_input_tokens_seen = -1; },
           [](auto& p) { p.progress->last_logged_step = 1; },
           [](auto& p) { p.manifest = etude::Manifest{.global_step = 1}; }}) {
    auto wrong = point;
    spoil(wrong);
    CHECK_THROWS_AS(etude::detail::check_place(wrong), etude::CheckpointError);
  }
}

// Saves in the middle of a log, and changes the log afterwards.
struct SavesThenWrites {
  std::function<void()> save = {};
  void on(etude::Log& e) {
    if (e.state.global_step != 2) return;
    save();
    e.logs["loss"] = 42;
  }
};

TEST_CASE("a log that changes after a checkpoint is in the next one with its new value") {
  const toy::Folder folder;
  auto args = saving(folder);
  args.logging_strategy = IntervalStrategy::steps;
  args.logging_steps = 1;
  etude::Trainer<SavesThenWrites> trainer(with(args, 4));
  trainer.callback<SavesThenWrites>().save = [&] { trainer.save_checkpoint(); };
  trainer.train();
  CHECK(etude::load_trainer_state(folder / "checkpoint-4").log_history.at(1).at("loss") == 42);
}

etude::TrainingArguments saving_and_warning(const std::string& folder) {
  auto args = saving(folder);
  args.log_level = etude::LogLevel::warning;
  return args;
}

void killed_quietly(const etude::TrainerOptions& options, std::int64_t step) {
  toy::printed([&] { train_until(options, step); }, STDERR_FILENO);
}

std::string warnings_of(const etude::TrainerOptions& options) {
  etude::Trainer<> trainer(options);
  return toy::printed([&] { trainer.train({.resume_from_checkpoint = true}); }, STDERR_FILENO);
}

TEST_CASE("resuming at or after the last step reports that nothing is left, and what to change") {
  const toy::Folder folder;
  auto args = saving_and_warning(folder);
  args.num_train_epochs = 2;
  etude::Trainer<>(with(args, 3)).train();
  const auto checkpoint = (folder / "checkpoint-6").string();
  CHECK(warnings_of(with(args, 3)) ==
        fmt::format(
            "etude: warning: nothing is left to train: {} is already at step 6 of 6; to continue, raise "
            "num_train_epochs (2); to start from scratch, give another output_dir\n",
            checkpoint));
  auto fewer = args;
  fewer.max_steps = 4;
  CHECK(
      toy::contains(warnings_of(with(fewer, 3)),
                    fmt::format("nothing is left to train: {} is already at step 6 of 4; to continue, raise "
                                "max_steps (4)",
                                checkpoint)));
  auto more = args;
  more.num_train_epochs = 3;
  CHECK_FALSE(toy::contains(warnings_of(with(more, 3)), "nothing is left"));
}

TEST_CASE("a checkpoint with an invalid learning rate resumes with the schedule's, and reports it") {
  using Limits = std::numeric_limits<double>;
  const toy::Folder unbroken;
  auto args = saving_and_warning(unbroken);
  args.lr_scheduler_type = etude::SchedulerType::linear;
  args.save_total_limit = 1;
  etude::Trainer<> whole(with(args, 6));
  whole.train();
  for (const double rate : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), -0.5}) {
    CAPTURE(rate);
    const toy::Folder folder;
    args.output_dir = folder;
    etude::Trainer spoilt(with(args, 6), etude::on<etude::StepEnd>().call([rate](const etude::StepEnd& e) {
      if (e.state.global_step == 3) e.optimizer->param_groups()[0].lr = rate;
    }));
    CHECK_THROWS_AS(spoilt.train(), etude::ArgumentError);
    etude::Trainer<> rest(with(args, 6));
    const auto said = toy::printed([&] { rest.train({.resume_from_checkpoint = true}); }, STDERR_FILENO);
    CHECK(toy::contains(
        said, fmt::format("resuming {}: the learning rate is {}, which the lr_scheduler gave or a callback "
                          "had set: the lr_scheduler sets it again",
                          (folder / "checkpoint-3").string(), rate)));
    CHECK(weight_of(rest) == weight_of(whole));
  }
}

TEST_CASE("a schedule that is infinite after the last step leaves a loadable checkpoint") {
  const toy::Folder folder;
  auto options = with(saving(folder), 4);
  options.lr_scheduler = [](std::int64_t step) { return 1.0 / static_cast<double>(4 - step); };
  etude::Trainer<>(options).train();
  CHECK(etude::Trainer<>(options).train({.resume_from_checkpoint = true}).global_step == 4);
}

TEST_CASE("a resume reports other training examples, by their number or a few of them") {
  const toy::Folder folder;
  const auto args = saving_and_warning(folder);
  killed_quietly(with(args, 4), 3);
  auto options = with(args, 4);
  const auto [x, y] = toy::points(4);
  options.train_dataset = {x, y + 1};
  const auto checkpoint = (folder / "checkpoint-2").string();
  CHECK(warnings_of(options) ==
        fmt::format(
            "etude: warning: resuming {} with another train_dataset: as many examples, but different ones\n",
            checkpoint));
  const toy::Folder again;
  const auto other = saving_and_warning(again);
  killed_quietly(with(other, 4), 3);
  CHECK(
      toy::contains(warnings_of(with(other, 5)), "checkpoint-2 with another train_dataset: 4 -> 5 examples"));
  const toy::Folder third;
  const auto same = saving_and_warning(third);
  killed_quietly(with(same, 4), 3);
  CHECK(warnings_of(with(same, 4)) == "");
}

TEST_CASE("a resume with a train_dataset of another size trains the remaining epochs or steps") {
  struct Case {
    std::int64_t examples, max_steps, steps;
  };
  // 4 of 10 examples of the second of 3 epochs are done at step 14.
  for (const Case& resumed : {Case{20, -1, 14 + 16 + 20}, Case{5, -1, 14 + 1 + 5}, Case{3, -1, 14 + 3},
                              Case{40, 30, 30}, Case{2, 30, 30}}) {
    const auto examples = resumed.examples, max_steps = resumed.max_steps, steps = resumed.steps;
    CAPTURE(examples);
    CAPTURE(max_steps);
    const toy::Folder folder;
    auto args = saving(folder);
    args.num_train_epochs = 3;
    args.max_steps = max_steps;
    train_until(with(args, 10), 15);
    // Killed once more, so that the checkpoint has the number of steps for the new size.
    train_until(with(args, examples), 16, {.resume_from_checkpoint = true});
    etude::Trainer<> trainer(with(args, examples));
    const auto result = trainer.train({.resume_from_checkpoint = true});
    CHECK(result.global_step == steps);
    CHECK(result.stop_reason == "");
    CHECK(trainer.state().max_steps == steps);
    if (max_steps < 0) CHECK(trainer.state().epoch == doctest::Approx(3));
  }
}

TEST_CASE("a checkpoint without a fingerprint of its examples is resumed without a warning") {
  const toy::Folder folder;
  const auto args = saving(folder);
  train_until(with(args, 4), 3);
  const auto checkpoint = folder / "checkpoint-2";
  std::ifstream in(checkpoint / "training_progress.json");
  auto progress = nlohmann::ordered_json::parse(in);
  CHECK(progress.at("train_dataset").at("size") == 4);
  progress.erase("train_dataset");
  std::ofstream(checkpoint / "training_progress.json") << progress;
  std::filesystem::remove(checkpoint / "etude_manifest.json");
  auto options = with(args, 5);
  options.args.log_level = etude::LogLevel::warning;
  etude::Trainer<> trainer(options);
  CHECK_FALSE(toy::contains(
      toy::printed([&] { trainer.train({.resume_from_checkpoint = checkpoint}); }, STDERR_FILENO),
      "train_dataset"));
}

TEST_CASE("the error about another model in the same folder names the checkpoint and the remedies first") {
  const toy::Folder folder;
  const auto args = saving(folder);
  etude::Trainer<>(with(args, 2)).train();
  auto options = with(args, 2);
  options.model = torch::nn::Linear(1, 1);
  const auto fault = toy::fault_of<etude::CheckpointError>(
      [&] { etude::Trainer<>(options).train({.resume_from_checkpoint = etude::if_any}); });
  CHECK(fault.starts_with(
      (folder / "checkpoint-2").string() +
      " doesn't fit this model: to start from scratch, give another output_dir or leave out "
      "resume_from_checkpoint; "));
}

TEST_CASE("the error about other optimizer groups names the checkpoint and the remedies too") {
  const toy::Folder folder;
  toy::Line model;
  auto options = with(saving(folder), 2);
  options.model = model;
  const torch::optim::SGDOptions sgd(0.1);
  options.optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), sgd);
  etude::Trainer<>(options).train();
  const std::vector<torch::optim::OptimizerParamGroup> groups{
      torch::optim::OptimizerParamGroup({model->weight}), torch::optim::OptimizerParamGroup({model->bias})};
  options.optimizer = std::make_shared<torch::optim::SGD>(groups, sgd);
  const auto fault = toy::fault_of<etude::CheckpointError>(
      [&] { etude::Trainer<>(options).train({.resume_from_checkpoint = etude::if_any}); });
  CHECK(toy::contains(
      fault, "checkpoint-2 doesn't fit this optimizer: to start from scratch, give another output_dir"));
}

TEST_CASE("two trainings can't write checkpoints to one folder at the same time") {
  const toy::Folder folder;
  const auto options = with(saving(folder), 2);
  std::string message;
  etude::Trainer<AtStep> first(options), second(options);
  first.callback<AtStep>() = {1, [&] {
                                try {
                                  second.train();
                                } catch (const etude::CheckpointError& error) {
                                  message = error.what();
                                }
                              }};
  first.train();
  CHECK(message.find("another training") != std::string::npos);
  second.train();
}

/// A loss with a weight that may be trained.
struct WeighedImpl : torch::nn::Module {
  explicit WeighedImpl(bool is_trained) {
    weight = register_parameter("weight", torch::ones({}), is_trained);
  }
  torch::Tensor forward(torch::Tensor output, torch::Tensor target) {
    return weight * torch::mse_loss(output, target);
  }
  torch::Tensor weight;
};
TORCH_MODULE(Weighed);

TEST_CASE("trained parameters of a loss, which no checkpoint has, are reported") {
  const auto warnings = [](bool is_trained) {
    const toy::Folder folder;
    auto options = toy::options(saving_and_warning(folder));
    options.loss = Weighed(is_trained);
    etude::Trainer<> trainer(options);
    return toy::printed([&] { trainer.train(); }, STDERR_FILENO);
  };
  CHECK(toy::contains(warnings(true), "no checkpoint has weight of the loss, "));
  CHECK_FALSE(toy::contains(warnings(false), "no checkpoint has"));
}

/// A norm followed by a line. Each training step changes the norm's buffers.
struct NormedImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return line(norm(x)); }
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(1))};
  toy::Line line{register_module("line", toy::Line())};
};
TORCH_MODULE(Normed);

/// Abandons a group after its first batch, and throws in the evaluation at the end of the epoch.
struct FailsAfterGivingUp {
  torch::Tensor mean = {};
  void on(const etude::SubstepEnd& e) { e.control.should_epoch_stop = true; }
  void on(const etude::EpochEnd& e) {
    mean = e.model.as<Normed>().norm->running_mean.clone();
    e.control.should_evaluate = true;
  }
  void on(const etude::EvaluateBegin&) const { throw Fault(); }
};

TEST_CASE("an evaluation that fails saves the buffers from its beginning, not those of a group before it") {
  const toy::Folder folder;
  auto args = saving(folder);
  args.save_on_exception = true;
  args.per_device_train_batch_size = 2;
  args.gradient_accumulation_steps = 2;
  auto options = with(args, 8);
  options.model = Normed();
  options.eval_dataset = toy::dataset(2);
  etude::Trainer<FailsAfterGivingUp> trainer(options);
  CHECK_THROWS_AS(trainer.train(), Fault);
  const auto& mean = trainer.callback<FailsAfterGivingUp>().mean;
  CHECK(mean.item<float>() != 0);
  for (const auto& [name, tensor] : etude::load_model_files(folder / "checkpoint-0"))
    if (name == "norm.running_mean") CHECK(tensor.equal(mean));
  CHECK(std::filesystem::exists(folder / "checkpoint-0"));
}

}  // namespace loop_checkpoints_test
