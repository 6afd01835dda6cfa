/// Measures what it costs to keep a replay buffer of a million transitions (44 MB) in checkpoints: 1000 steps
/// by a handwritten loop, by step() with the option program_state, and by train() over a stream with state();
/// then a checkpoint, and a second one after 1000 more transitions. `replay_bench [ROUNDS]`

#include <etude/callbacks/printer.hpp>
#include <etude/etude.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "measure.hpp"

namespace {

constexpr std::int64_t capacity = 1'000'000, batch_size = 64, steps = 1000;

struct Replay {
  ETUDE_STRUCT(Replay, (torch::Tensor, states, "before", torch::zeros({capacity, 4})),
               (torch::Tensor, next, "after", torch::zeros({capacity, 4})),
               (torch::Tensor, actions, "chosen", torch::zeros({capacity}, torch::kLong)),
               (torch::Tensor, rewards, "given", torch::zeros({capacity})), (std::int64_t, added, "so far"));

  void add() {
    const auto i = added++ % capacity;
    states[i] = static_cast<double>(i % 7), next[i] = 1.0, actions[i] = i % 2, rewards[i] = 1.0;
  }
  std::pair<torch::Tensor, torch::Tensor> draw() const {
    const auto rows = torch::randint(capacity, {batch_size}, torch::kLong);
    return {states.index_select(0, rows), rewards.index_select(0, rows).unsqueeze(1)};
  }
};

torch::nn::Sequential net() {
  return torch::nn::Sequential(torch::nn::Linear(4, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));
}

etude::TrainingArguments arguments(const std::string& folder = "/nonexistent") {
  return {.output_dir = folder,
          .per_device_train_batch_size = batch_size,
          .max_steps = steps,
          .optim = etude::OptimizerNames::sgd,
          .max_grad_norm = 0,
          .lr_scheduler_type = etude::SchedulerType::constant,
          .save_strategy = etude::SaveStrategy::no,
          .logging_strategy = etude::IntervalStrategy::no,
          .disable_tqdm = true};
}

using Trainer = etude::Trainer<etude::Without<etude::ProgressCallback, etude::PrinterCallback>>;

double by_hand(Replay& replay) {
  auto model = net();
  torch::optim::SGD optimizer(model->parameters(), 5e-5);
  return bench::seconds([&] {
    for (std::int64_t i = 0; i < steps; ++i) {
      replay.add();
      const auto [x, y] = replay.draw();
      optimizer.zero_grad();
      torch::mse_loss(model->forward(x), y).backward();
      optimizer.step();
    }
  });
}

double by_step(Replay& replay) {
  Trainer trainer({.model = net(),
                   .args = arguments(),
                   .loss = torch::nn::MSELoss(),
                   .program_state = {{"replay", replay}}});
  return bench::seconds([&] {
    for (std::int64_t i = 0; i < steps; ++i) {
      replay.add();
      const auto [x, y] = replay.draw();
      trainer.step(x, y);
    }
    trainer.finish();
  });
}

/// The buffer as a stream of examples with state.
struct Stream {
  Replay* replay;
  std::pair<torch::Tensor, torch::Tensor> batch = {};
  std::int64_t row = batch_size;

  std::optional<etude::Example> next() {
    if (row == batch_size) replay->add(), batch = replay->draw(), row = 0;
    const auto i = row++;
    return etude::Example{{batch.first[i]}, {batch.second[i]}};
  }
  void reset() {}
  etude::DatasetState state() const {
    etude::DatasetState state{.values = {{"added", replay->added}}};
    state.tensors = {{"states", replay->states},
                     {"next", replay->next},
                     {"actions", replay->actions},
                     {"rewards", replay->rewards}};
    return state;
  }
  void load_state(const etude::DatasetState& state) { replay->states = state.tensors.at("states"); }
};

double by_stream(Replay& replay) {
  Trainer trainer(
      {.model = net(), .args = arguments(), .loss = torch::nn::MSELoss(), .train_dataset = Stream{&replay}});
  return bench::seconds([&] { trainer.train(); });
}

void checkpoints(Replay& replay) {
  const std::string folder = "replay_bench_output";
  std::filesystem::remove_all(folder);
  Trainer trainer({.model = net(),
                   .args = arguments(folder),
                   .loss = torch::nn::MSELoss(),
                   .program_state = {{"replay", replay}}});
  const auto step = [&] {
    const auto [x, y] = replay.draw();
    trainer.step(x, y);
  };
  step();
  const auto first = bench::seconds([&] { trainer.save_checkpoint(); });
  for (std::int64_t i = 0; i < steps; ++i) replay.add();
  step();
  const auto second = bench::seconds([&] { trainer.save_checkpoint(); });
  fmt::print("- a checkpoint: {:.0f} ms, and the next, after {} transitions: {:.0f} ms\n", first * 1e3, steps,
             second * 1e3);
  std::filesystem::remove_all(folder);
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Rounds rounds(argc, argv, 5);
  torch::manual_seed(1);
  torch::set_num_threads(1);
  Replay replay;
  rounds.row("1000 steps with a million transitions", "steps", steps,
             {{"by hand", [&] { return by_hand(replay); }},
              {"step() with program_state", [&] { return by_step(replay); }},
              {"train() over a stream with state()", [&] { return by_stream(replay); }}});
  checkpoints(replay);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
