#pragma once

#include <doctest/doctest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/ranks.hpp"
#include "common/toy.hpp"
#include "etude/data/dataset.hpp"
#include "etude/trainer.hpp"

/// A problem for several processes: each example has five points of a sine wave and one of three classes.
namespace toy::sines {

/// A perceptron 5-7-3, with the same weights in each call.
inline torch::nn::Sequential net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(5, 7), torch::nn::Tanh(), torch::nn::Linear(7, 3));
}

/// The examples [first, first + count) of an endless set: points [count, 5] and labels [count].
inline std::pair<torch::Tensor, torch::Tensor> rows(std::int64_t first, std::int64_t count) {
  const auto numbers = torch::arange(first * 5, (first + count) * 5).to(torch::kFloat).reshape({count, 5});
  return {torch::sin(numbers), torch::arange(first, first + count).remainder(3)};
}
inline etude::Dataset examples(std::int64_t count, std::int64_t first = 0) {
  auto [points, labels] = rows(first, count);
  return {std::move(points), std::move(labels)};
}

/// Two epochs of AdamW with clipping, and a log every two steps.
inline etude::TrainingArguments arguments(std::int64_t batch, std::int64_t group) {
  auto args = toy::arguments();
  args.per_device_train_batch_size = batch;
  args.gradient_accumulation_steps = group;
  args.num_train_epochs = 2;
  args.learning_rate = 0.01;
  args.max_grad_norm = 0.5;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 2;
  return args;
}

inline etude::TrainerOptions problem(etude::Model model, etude::TrainingArguments args,
                                     std::int64_t count = 45) {
  return {.model = std::move(model),
          .args = std::move(args),
          .loss = torch::nn::CrossEntropyLoss(),
          .train_dataset = examples(count),
          .eval_dataset = examples(11)};
}

/// Cross entropy, except that call number `last` on rank 1 stops the training.
inline auto loss_that_stops(int last, std::string reason) {
  return [calls = 0, last, reason = std::move(reason)](etude::Model& model, const etude::Batch& batch,
                                                       std::optional<double>) mutable -> etude::LossOutput {
    if (++calls == last && toy::rank() == 1) throw etude::StopTraining(reason);
    auto outputs = model.forward(batch);
    return {torch::nn::functional::cross_entropy(outputs, batch.labels), outputs, false};
  };
}

/// Throws in one of several processes.
struct BreaksAfterStep5 {
  void on(const etude::StepEnd& e) {
    if (e.args.process_index() == 1 && e.state.global_step == 5) throw std::runtime_error("broken");
  }
};

/// Copies of a model's parameters and buffers.
template <class Trainer>
std::vector<torch::Tensor> weights(Trainer& trainer) {
  std::vector<torch::Tensor> result;
  for (const auto& [name, tensor] : trainer.model().state_dict()) result.push_back(tensor.detach().clone());
  return result;
}

/// Checks that no element differs by more than `tolerance` times (1 + the largest magnitude in `b`'s tensor).
inline void check_close(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b,
                        double tolerance = 1e-5) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK((a[i] - b[i]).abs().max().item<double>() <= tolerance * (1 + b[i].abs().max().item<double>()));
  }
}

/// Resumes from the checkpoint of step 4, and compares the result with the whole training `one` in a single
/// process.
template <class Trainer>
void check_resumed(Trainer& trainer, const std::string& folder, etude::TrainerOptions one) {
  trainer.train({.resume_from_checkpoint = folder + "/checkpoint-4"});
  const toy::Alone alone;
  etude::Trainer<> whole(std::move(one));
  whole.train();
  CHECK(trainer.state().global_step == whole.state().global_step);
  check_close(weights(trainer), weights(whole));
}

/// The environment of processes that run a stage of a test with checkpoints in `folder`.
inline std::vector<std::string> stage(const std::string& folder, const std::string& name) {
  return {"ETUDE_TEST_FOLDER=" + folder, "ETUDE_TEST_STAGE=" + name};
}

}  // namespace toy::sines
