#pragma once

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "etude/callbacks/early_stopping.hpp"
#include "etude/io/checksum.hpp"
#include "etude/reflect/json.hpp"
#include "etude/trainer.hpp"

/// A training with everything that could differ after a restart: shuffling, dropout, running means,
/// accumulation with a partial last group in each epoch, a schedule, early stopping, a best model, and random
/// numbers in a callback and in the user's generator.
namespace toy {

struct Diary {
  ETUDE_STRUCT(Diary, (std::int64_t, steps, "StepEnd"), (std::int64_t, substeps, "SubstepEnd"),
               (std::int64_t, step_begins, "StepBegin"), (std::int64_t, epochs, "TrainingRunEpochEnd"),
               (std::int64_t, predictions, "PredictionStep"), (std::int64_t, epoch_begins, "EpochBegin"),
               (std::int64_t, epoch_ends, "EpochEnd"), (std::int64_t, logs, "Log"),
               (std::int64_t, evaluations, "Evaluate"), (std::int64_t, batches, "BatchFetched"),
               (std::int64_t, stops, "Stop"), (double, drawn, "of the user's generator"),
               (double, losses, "of all micro-batches"));
  std::mt19937* engine = nullptr;

  void on(const etude::StepEnd& e) {
    ++steps;
    e.log("drawn", drawn);
  }
  void on(const etude::SubstepEnd&) { ++substeps; }
  void on(const etude::StepBegin&) { ++step_begins; }
  void on(const etude::TrainingRunEpochEnd&) { ++epochs; }
  void on(const etude::PredictionStep&) { ++predictions; }
  void on(etude::BatchFetched& e) {
    ++batches;
    e.batch.inputs = e.batch.inputs.transform(
        [](const torch::Tensor& tensor) { return tensor + 0.01 * torch::randn_like(tensor); });
  }
  void on(const etude::EpochBegin&) { ++epoch_begins; }
  void on(const etude::EpochEnd&) { ++epoch_ends; }
  void on(const etude::Log&) { ++logs; }
  void on(const etude::Evaluate&) { ++evaluations; }
  void on(const etude::Stop&) { ++stops; }
  void on(const etude::BackwardEnd& e) {
    losses = losses * 0.9 + e.loss.item<double>();
    drawn += static_cast<double>((*engine)()) / 4294967296.0;
  }
};

/// Replaces the callback that prints the logs.
struct Quiet : etude::PrinterCallback {
  void on(const etude::Log&) {}
};

struct DroppingNet : torch::nn::Module {
  DroppingNet() {
    torch::manual_seed(5);
    first = register_module("first", torch::nn::Linear(3, 6));
    norm = register_module("norm", torch::nn::BatchNorm1d(6));
    last = register_module("last", torch::nn::Linear(6, 1));
  }
  torch::Tensor forward(torch::Tensor x) {
    return last(torch::dropout(torch::relu(norm(first(x))), 0.3, is_training()));
  }
  torch::nn::Linear first = nullptr, last = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};

inline etude::Dataset waves(std::int64_t n) {
  const auto x = torch::sin(torch::arange(n * 3).to(torch::kFloat)).reshape({n, 3});
  return {x, x.sum(1, true)};
}

/// Two epochs of 6 steps of 4 micro-batches, the last step of each with 3; a checkpoint at every step, an
/// evaluation every 4 steps and a log every 5.
inline etude::TrainerOptions full_options(const std::string& output_dir, std::mt19937& engine) {
  etude::TrainingArguments args;
  args.output_dir = output_dir;
  args.per_device_train_batch_size = 2;
  args.per_device_eval_batch_size = 8;
  args.gradient_accumulation_steps = 4;
  args.num_train_epochs = 2;
  args.learning_rate = 0.02;
  args.weight_decay = 0.01;
  args.lr_scheduler_type = etude::SchedulerType::cosine;
  args.warmup_steps = 3;
  args.logging_steps = 5;
  args.eval_strategy = etude::IntervalStrategy::steps;
  args.eval_steps = 4;
  args.metric_for_best_model = "loss";
  args.save_steps = 1;
  args.log_level = etude::LogLevel::critical;
  args.disable_tqdm = true;
  args.use_cpu = true;
  engine.seed(11);
  return {.model = std::make_shared<DroppingNet>(),
          .args = args,
          .loss = torch::nn::MSELoss(),
          .train_dataset = waves(46),
          .eval_dataset = waves(9),
          .generators = {{"mine", &engine}}};
}

inline std::string checksum_of(const torch::Tensor& tensor) {
  const auto bytes = tensor.detach().cpu().contiguous();
  return etude::checksum({static_cast<const std::byte*>(bytes.data_ptr()), bytes.nbytes()});
}

/// Checksums of all weights.
template <class Trainer>
std::string weights(Trainer& trainer) {
  std::string text;
  for (const auto& [name, tensor] : trainer.model().state_dict())
    text += fmt::format("{} {}\n", name, checksum_of(tensor));
  return text;
}

inline bool is_timing(const std::string& metric) {
  return metric.ends_with("_runtime") || metric.ends_with("_per_second");
}

/// Checksums of all weights and of the optimizer's state.
template <class Trainer>
std::string tensors(Trainer& trainer) {
  auto text = weights(trainer);
  for (const auto& [name, tensor] : trainer.optimizer()->state())
    text += fmt::format("optimizer {} {}\n", name, checksum_of(tensor));
  return text;
}

/// Everything that must be bit-identical: weights, optimizer, history without timings, and callbacks' state.
template <class Trainer>
std::string outcome(Trainer& trainer) {
  auto text = tensors(trainer);
  const auto& state = trainer.state();
  for (const auto& entry : state.log_history) {
    for (const auto& [name, value] : entry)
      if (!is_timing(name)) text += fmt::format("{}={} ", name, value.dump());
    text += "\n";
  }
  text += fmt::format("step {} epoch {} best {} at {}\n", state.global_step, state.epoch,
                      state.best_metric.value_or(-1), state.best_global_step.value_or(-1));
  text += etude::to_json_value(trainer.template callback<Diary>()).dump() + "\n";
  text += etude::to_json_value(trainer.template callback<etude::EarlyStoppingCallback>()).dump() + "\n";
  return text;
}

}  // namespace toy
