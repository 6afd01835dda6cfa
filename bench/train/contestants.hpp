#pragma once

#include <torch/data.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <etude/etude.hpp>
#include <etude/libtorch/optim.hpp>
#include <numeric>

#include "workloads.hpp"

/// The C++ contestants. All do the same work: AdamW, gradients clipped to a norm of 1, batches in the same
/// order.
namespace bench {

struct Task {
  std::shared_ptr<Network> network;
  Examples examples;
  torch::Tensor order;  ///< indices of the examples, epoch after epoch, for `steps` batches
  std::int64_t batch_size;
  std::int64_t steps;
};

inline constexpr double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01,
                        max_grad_norm = 1;

/// The examples in the order of training.
struct OrderedDataset : torch::data::datasets::Dataset<OrderedDataset> {
  explicit OrderedDataset(const Task& task) : examples(task.examples), order(task.order) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto row = order.data_ptr<std::int64_t>()[index];
    return {examples.inputs[row], examples.targets[row]};
  }
  torch::optional<std::size_t> size() const override { return static_cast<std::size_t>(order.size(0)); }

  Examples examples;
  torch::Tensor order;
};

/// The loop as people write it today.
inline void today(const Task& task) {
  std::vector<torch::Tensor> decayed, spared;
  for (const auto& item : task.network->named_parameters())
    (decays(item.key()) ? decayed : spared).push_back(item.value());
  using torch::optim::AdamWOptions;
  torch::optim::AdamW optimizer(
      {torch::optim::OptimizerParamGroup(
           decayed, std::make_unique<AdamWOptions>(AdamWOptions(learning_rate).weight_decay(weight_decay))),
       torch::optim::OptimizerParamGroup(
           spared, std::make_unique<AdamWOptions>(AdamWOptions(learning_rate).weight_decay(0)))},
      AdamWOptions(learning_rate));
  const auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      OrderedDataset(task).map(torch::data::transforms::Stack<>()),
      torch::data::DataLoaderOptions(static_cast<std::size_t>(task.batch_size)));

  task.network->train();
  [[maybe_unused]] double total_loss = 0;  // most loops sum it up for their logs
  for (const auto& batch : *loader) {
    optimizer.zero_grad();
    const auto batch_loss = loss(task.network->forward(batch.data), batch.target);
    batch_loss.backward();
    torch::nn::utils::clip_grad_norm_(task.network->parameters(), max_grad_norm);
    optimizer.step();
    total_loss += batch_loss.item<double>();
  }
}

/// Gathers the batch of a step as a whole.
inline Examples batch_of(const Task& task, std::int64_t step) {
  const auto rows = task.order.narrow(0, step * task.batch_size, task.batch_size);
  return {task.examples.inputs.index_select(0, rows), task.examples.targets.index_select(0, rows)};
}

/// The work that no loop can avoid. Undefined gradients need no accumulation: the backward pass assigns new
/// tensors.
inline void forward_backward(const Task& task) {
  task.network->train();
  const auto parameters = task.network->parameters();
  const auto [inputs, targets] = batch_of(task, 0);
  for (std::int64_t step = 0; step < task.steps; ++step) {
    for (const auto& parameter : parameters) parameter.mutable_grad().reset();
    loss(task.network->forward(inputs), targets).backward();
  }
}

#if ETUDE_HAS_FUSED_OPTIMIZERS
/// Avoids the cost of an operator for small tensors.
inline double sum_of_squares(const torch::Tensor& gradient) {
  const auto size = gradient.numel();
  if (size > 4096) {
    const auto flat = gradient.view(-1);
    return at::dot(flat, flat).item<double>();
  }
  const auto* values = gradient.data_ptr<float>();
  return std::inner_product(values, values + size, values, 0.0F);
}

/// The fastest loop that we could write by hand. It uses gradients as the backward pass creates them: flat
/// ones would have to be zeroed, read and written once more.
inline void best(const Task& task) {
  struct Group {
    double weight_decay;
    std::vector<torch::Tensor> parameters = {}, gradients = {}, means = {}, squares = {}, steps_made = {};
  };
  Group groups[] = {{weight_decay}, {0}};
  const auto steps_made = torch::zeros({});
  for (const auto& item : task.network->named_parameters()) {
    auto& group = groups[decays(item.key()) ? 0 : 1];
    group.parameters.push_back(item.value());
    group.means.push_back(torch::zeros_like(item.value()));
    group.squares.push_back(torch::zeros_like(item.value()));
    group.steps_made.push_back(steps_made);
  }
  const auto scale = torch::ones({});
  const auto total_loss = torch::zeros({});
  [[maybe_unused]] double sum_of_losses = 0;

  task.network->train();
  for (std::int64_t step = 0; step < task.steps; ++step) {
    const auto [inputs, targets] = batch_of(task, step);
    const auto batch_loss = loss(task.network->forward(inputs), targets);
    batch_loss.backward();

    const torch::NoGradGuard no_grad;
    double squares = 0;
    for (auto& group : groups) {
      for (const auto& parameter : group.parameters) {
        group.gradients.push_back(std::move(parameter.mutable_grad()));
        squares += sum_of_squares(group.gradients.back());
      }
    }
    // The kernel divides the gradients by this, so clipping needs no separate pass.
    const double excess = (std::sqrt(squares) + 1e-6) / max_grad_norm;
    *scale.data_ptr<float>() = static_cast<float>(excess);
    ++*steps_made.data_ptr<float>();
    for (auto& group : groups) {
      at::_fused_adamw_(group.parameters, group.gradients, group.means, group.squares, {}, group.steps_made,
                        learning_rate, beta1, beta2, group.weight_decay, epsilon, /*amsgrad=*/false,
                        /*maximize=*/false,
                        excess > 1 ? torch::optional<torch::Tensor>(scale) : torch::nullopt);
      group.gradients.clear();
    }
    total_loss.add_(batch_loss);
    if (step % 500 == 499) {
      sum_of_losses += total_loss.item<double>();
      total_loss.zero_();
    }
  }
}
#endif

/// Etude with its defaults, plus the callbacks and policies in `List`.
template <class... List>
void train_with_etude(const Task& task, bool bf16 = false) {
  etude::Trainer<List...> trainer({.model = task.network,
                                   .args = {.output_dir = "train_bench_output",
                                            .per_device_train_batch_size = task.batch_size,
                                            .max_steps = task.steps,
                                            .learning_rate = learning_rate,
                                            .weight_decay = weight_decay,
                                            .lr_scheduler_type = etude::SchedulerType::constant,
                                            .save_strategy = etude::SaveStrategy::no,
                                            .bf16 = bf16,
                                            .use_cpu = true},
                                   .loss = loss,
                                   .train_dataset = {task.examples.inputs, task.examples.targets}});
  trainer.train();
}

/// One of many callbacks that each do a little at each step.
template <int>
struct Busy {
  void on(const etude::StepBegin&) { began = std::chrono::steady_clock::now(); }
  void on(const etude::BackwardEnd& e) { elements += e.loss.numel(); }
  void on(const etude::StepEnd& e) {
    longest = std::max(longest, std::chrono::steady_clock::now() - began);
    last_step = e.state.global_step;
  }
  std::chrono::steady_clock::time_point began = {};
  std::chrono::steady_clock::duration longest = {};
  std::int64_t elements = 0, last_step = 0;
};

template <int... number>
void train_with_callbacks(const Task& task, std::integer_sequence<int, number...>) {
  train_with_etude<Busy<number>...>(task);
}

inline const std::map<std::string, std::function<void(const Task&)>>& contestants() {
  static const std::map<std::string, std::function<void(const Task&)>> all {
    {"today", today},
#if ETUDE_HAS_FUSED_OPTIMIZERS
        {"best", best},
#endif
        {"forward_backward", forward_backward}, {"etude", [](const Task& task) { train_with_etude<>(task); }},
#ifdef BENCH_LOADS_EXPORTED
        {"etude_exported", [](const Task& task) { train_with_etude<>(task); }},
#endif
        {"etude_bf16", [](const Task& task) { train_with_etude<>(task, true); }},
        {"etude_none", [](const Task& task) { train_with_etude<etude::NoDefaultCallbacks>(task); }}, {
      "etude_16", [](const Task& task) { train_with_callbacks(task, std::make_integer_sequence<int, 16>()); }
    }
  };
  return all;
}

}  // namespace bench
