#include "etude/data/program_state.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/full_run.hpp"
#include "common/interrupting.hpp"
#include "common/printed.hpp"
#include "common/ranks.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"
#include "etude/trainer.hpp"

namespace loop_program_state_test {

struct Replay {
  ETUDE_STRUCT(Replay, (torch::Tensor, states, "inputs", torch::zeros({8, 1})),
               (torch::Tensor, values, "targets", torch::zeros({8, 1})), (std::int64_t, added, "so far", 0));
};

/// A random walk whose places fill a ring buffer, from which batches are drawn.
struct World {
  ETUDE_STRUCT(World, (Replay, replay, "past places"), (torch::Tensor, place, "now, undefined at first"),
               (std::int64_t, tick, "places so far", 0), (std::mt19937, engine, "draws rows"));
  torch::Generator noise = torch::make_generator<at::CPUGeneratorImpl>(3);

  etude::ProgramState state() { return {{"world", *this}, {"noise", noise}}; }

  void advance() {
    ++tick;
    if (!place.defined()) place = torch::zeros({1});
    place = place * 0.9 + torch::rand({1}, noise);
    const auto row = replay.added++ % 8;
    replay.states[row] = place, replay.values[row] = 2 * place + 1;
  }
  std::pair<torch::Tensor, torch::Tensor> draw() {
    const auto row =
        static_cast<std::int64_t>(engine() % static_cast<unsigned>(std::min<std::int64_t>(replay.added, 8)));
    return {replay.states.slice(0, row, row + 1), replay.values.slice(0, row, row + 1)};
  }
  std::string text() {
    auto saved = etude::save_variables(state());
    auto text = saved.values.dump();
    for (const auto& [name, tensor] : saved.tensors) text += name + toy::checksum_of(tensor);
    return text;
  }
};

etude::TrainingArguments saving(const std::string& folder, std::int64_t every) {
  auto args = toy::arguments();
  args.output_dir = folder;
  args.max_steps = 12;
  args.learning_rate = 0.05;
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = static_cast<double>(every);
  return args;
}

struct Outcome {
  std::string world, weights;
  bool operator==(const Outcome&) const = default;
};

/// Trains by step() until it is done, abandoned after `last` steps, or interrupted in the program's code
/// before the step after `signal_at`.
Outcome run(const etude::TrainingArguments& args, std::int64_t last = 99, std::int64_t signal_at = -1) {
  World world;
  etude::Trainer<> trainer(
      {.model = toy::Line(), .args = args, .loss = torch::nn::MSELoss(), .program_state = world.state()});
  trainer.begin({.resume_from_checkpoint = etude::if_any});
  bool done = false;
  while (!done && trainer.state().global_step < last) {
    world.advance();
    if (trainer.state().global_step == signal_at) signal_at = -1, ::raise(SIGTERM);
    const auto [x, y] = world.draw();
    done = trainer.step(x, y).should_stop;
  }
  if (done) trainer.finish();
  std::string weights;
  for (const auto& [name, tensor] : trainer.model().state_dict()) weights += toy::checksum_of(tensor);
  return {world.text(), weights};
}

TEST_CASE("a loop of step() goes on exactly: abandoned, interrupted, with an asynchronous writer") {
  toy::Folder alone;
  const auto whole = run(saving(alone, 5));
  for (const bool in_background : {false, true}) {
    toy::Folder folder;
    auto args = saving(folder, 5);
    args.save_async = in_background;
    run(args, 7);
    CHECK(run(args) == whole);
  }
  for (const std::int64_t group : {1, 3}) {
    toy::Folder folder, other;
    auto args = saving(folder, 100);
    args.gradient_accumulation_steps = group;
    const toy::OwnHandler handler;
    CHECK_THROWS_AS(run(args, 99, 6), etude::Interrupted);
    CHECK(std::filesystem::exists(folder / "checkpoint-7"));  // the batch that was drawn is used first
    const auto resumed = run(args);
    args.output_dir = other;
    CHECK(resumed == run(args));
  }
}

/// A dataset without a state, whose next() changes the program's variables.
struct Collected {
  World* world = nullptr;
  std::optional<etude::Example> next() {
    world->advance();
    const auto [x, y] = world->draw();
    return etude::Example{{x[0].clone()}, {y[0].clone()}};
  }
  void reset() {}
};

struct Signal {
  std::int64_t step = -1;
  void on(const etude::SubstepEnd& e) const {
    if (e.state.global_step == step) ::raise(SIGTERM);
  }
};

TEST_CASE("train() with data that changes variables goes on exactly, and a signal waits for a group's end") {
  const auto trained = [](const etude::TrainingArguments& args, std::int64_t signal_at = -1) {
    World world;
    etude::Trainer<Signal> trainer({.model = toy::Line(),
                                    .args = args,
                                    .loss = torch::nn::MSELoss(),
                                    .train_dataset = Collected{&world},
                                    .program_state = world.state()},
                                   Signal{signal_at});
    trainer.train({.resume_from_checkpoint = etude::if_any});
    std::string weights;
    for (const auto& [name, tensor] : trainer.model().state_dict()) weights += toy::checksum_of(tensor);
    return Outcome{world.text(), weights};
  };
  toy::Folder alone, folder;
  auto args = saving(alone, 100);
  args.gradient_accumulation_steps = 2;
  const auto whole = trained(args);
  args.output_dir = folder;
  const toy::OwnHandler handler;
  CHECK_THROWS_AS(trained(args, 4), etude::Interrupted);
  CHECK(!std::filesystem::exists(folder / "checkpoint-5/half_done_accumulation.safetensors"));
  CHECK(trained(args) == whole);
}

TEST_CASE("handlers of a resumed training's begin see the variables, and what they change is restored") {
  struct Changes {
    std::int64_t* count;
    std::vector<std::int64_t> seen;
    void on(const etude::TrainBegin&) { seen.push_back(std::exchange(*count, -1)); }
    void on(const etude::EpochBegin&) { seen.push_back(std::exchange(*count, -2)); }
    void on(const etude::StepBegin&) { seen.push_back((*count)++); }
  };
  toy::Folder folder;
  std::int64_t count = 0;
  const auto train = [&](std::int64_t steps) {
    auto args = saving(folder, 2);
    args.max_steps = steps;
    etude::Trainer<Changes> trainer({.model = toy::Line(),
                                     .args = args,
                                     .loss = torch::nn::MSELoss(),
                                     .train_dataset = toy::dataset(100),
                                     .program_state = {{"count", count}}},
                                    Changes{&count, {}});
    trainer.train({.resume_from_checkpoint = etude::if_any});
    return trainer.callback<Changes>().seen;
  };
  CHECK(train(2) == std::vector<std::int64_t>{0, -1, -2, -1});
  count = 55;
  CHECK(train(4) == std::vector<std::int64_t>{0, 0, 0, 1});
}

TEST_CASE("what a checkpoint lacks or has too much of is reported or refused by name") {
  toy::Folder folder;
  std::int64_t count = 3;
  torch::Tensor tensor = torch::zeros({2});
  const auto train = [&](etude::ProgramState state, std::int64_t steps) {
    auto args = saving(folder, 1);
    args.max_steps = steps;
    args.log_level = etude::LogLevel::warning;
    etude::Trainer<> trainer({.model = toy::Line(),
                              .args = args,
                              .loss = torch::nn::MSELoss(),
                              .train_dataset = toy::dataset(100),
                              .program_state = std::move(state)});
    trainer.train({.resume_from_checkpoint = etude::if_any});
  };
  train({}, 1);
  const auto printed = [&](const etude::ProgramState& state, std::int64_t steps) {
    return toy::printed([&] { train(state, steps); }, STDERR_FILENO);
  };
  CHECK(toy::contains(printed({{"count", count}}, 2), "the program's state is missing: its variables stay"));
  CHECK(count == 3);
  CHECK(toy::contains(printed({}, 3), "the program's state isn't used: the option program_state is empty"));
  train({{"count", count}, {"tensor", tensor}}, 4);
  tensor = torch::zeros({3});
  const auto fault = toy::fault_of([&] { train({{"count", count}, {"tensor", tensor}}, 5); });
  CHECK(toy::contains(fault, "checkpoint-4 doesn't fit this program: to start from scratch"));
  CHECK(toy::contains(fault, "tensor is float32 [2] in the checkpoint: must be float32 [3]"));
  CHECK(toy::contains(toy::fault_of([&] {
                        train({{"other", count}}, 5);
                      }),
                      "other is missing in the checkpoint; count is in the checkpoint, and the program"));
  const auto refused = [&](const etude::ProgramState& state) {
    return toy::fault_of<etude::ArgumentError>([&] { train(state, 5); });
  };
  CHECK(refused({{"a", count}, {"a", tensor}}) ==
        "program_state has the name 'a' twice: must be a name for each variable");
  CHECK(refused({{"ranks.1", count}}) ==
        "program_state has the name 'ranks.1': must be UTF-8, not empty, and not begin with 'ranks.'");
}

/// Counts how often its state is requested.
struct Asked {
  std::int64_t* times;
  nlohmann::json state() const { return ++*times; }
  void load_state(const nlohmann::json&) {}
};

TEST_CASE("variables are asked for once a checkpoint") {
  toy::Folder folder;
  std::int64_t times = 0;
  Asked asked{&times};
  for (const auto strategy : {etude::SaveStrategy::no, etude::SaveStrategy::steps}) {
    auto args = saving(folder, 4);
    args.save_strategy = strategy;
    etude::Trainer<> trainer({.model = toy::Line(),
                              .args = args,
                              .loss = torch::nn::MSELoss(),
                              .program_state = {{"asked", asked}}});
    for (int i = 0; i < 12; ++i) trainer.step(torch::ones({1, 1}), torch::ones({1, 1}));
    trainer.finish();
    CHECK(times == (strategy == etude::SaveStrategy::no ? 0 : 3));
  }
}

TEST_CASE("of a large tensor, a checkpoint writes the parts that have changed, and links to the others") {
  toy::Folder folder;
  auto big = torch::zeros({7, 500000});  // rows of 2 MB: parts of 2, 2, 2 and 1
  torch::Tensor other;
  const etude::ProgramState state{{"a/b", big}, {"other", other}};
  struct Changes {
    torch::Tensor* big;
    void on(const etude::StepBegin& e) const { (*big)[6][e.state.global_step] = 1; }
  };
  const auto train = [&](std::int64_t steps) {
    auto args = saving(folder, 1);
    args.max_steps = steps;
    etude::Trainer<Changes> trainer({.model = toy::Line(),
                                     .args = args,
                                     .loss = torch::nn::MSELoss(),
                                     .train_dataset = toy::dataset(100),
                                     .program_state = state},
                                    Changes{&big});
    trainer.train({.resume_from_checkpoint = etude::if_any});
  };
  train(2);
  const auto part = [&](int step, int i) {
    return folder / ("checkpoint-" + std::to_string(step) + "/program_state/a%2Fb." + std::to_string(i) +
                     ".safetensors");
  };
  CHECK(std::filesystem::file_size(part(2, 0)) / 1000 == 4000);
  CHECK(std::filesystem::file_size(part(2, 3)) / 1000 == 2000);
  CHECK(!std::filesystem::exists(part(2, 4)));
  for (int i = 0; i < 3; ++i) CHECK(std::filesystem::equivalent(part(1, i), part(2, i)));
  CHECK(!std::filesystem::equivalent(part(1, 3), part(2, 3)));
  std::filesystem::remove_all(folder / "checkpoint-1");
  big = torch::Tensor();
  train(3);  // links to files that an earlier trainer has written
  CHECK(std::filesystem::equivalent(part(2, 0), part(3, 0)));
  CHECK(big.sizes() == std::vector<std::int64_t>{7, 500000});
  CHECK(torch::equal(big[6].slice(0, 0, 4), torch::tensor({1.0F, 1.0F, 1.0F, 0.0F})));
  CHECK(big.sum().item<double>() == 3);
}

TEST_CASE("each of two processes gets back its own variables") {
  if (!toy::is_rank()) {
    toy::Folder folder;
    CHECK(toy::in_processes(2, "each of two processes gets back its own variables",
                            {"ETUDE_TEST_FOLDER=" + std::string(folder)}) ==
          std::vector<std::string>(2, "exit 0"));
    return;
  }
  auto args = saving(std::getenv("ETUDE_TEST_FOLDER"), 2);
  torch::Tensor mine;
  std::string name;
  const auto train = [&](std::int64_t steps) {
    args.max_steps = steps;
    etude::Trainer<etude::DistributedDataParallel> trainer(
        {.model = toy::Line(),
         .args = args,
         .loss = torch::nn::MSELoss(),
         .train_dataset = toy::dataset(100),
         .program_state = {{"mine", mine}, {"name", name}}});
    trainer.train({.resume_from_checkpoint = etude::if_any});
  };
  mine = torch::full({2 + toy::rank()}, toy::rank());
  name = toy::rank() == 0 ? "first" : "second";
  train(2);
  mine = torch::Tensor();
  name.clear();
  train(4);
  CHECK(mine.size(0) == 2 + toy::rank());
  CHECK(mine[0].item<std::int64_t>() == toy::rank());
  CHECK(name == (toy::rank() == 0 ? "first" : "second"));
}

}  // namespace loop_program_state_test
