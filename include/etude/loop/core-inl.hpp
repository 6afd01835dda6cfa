#pragma once

#include <torch/cuda.h>
#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "etude/checkpoint/background.hpp"
#include "etude/checkpoint/model_files.hpp"
#include "etude/checkpoint/random_state.hpp"
#include "etude/checkpoint/snapshot_buffers.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/error.hpp"
#include "etude/events.hpp"
#include "etude/libtorch/memory.hpp"
#include "etude/libtorch/random.hpp"
#include "etude/linkage.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/options.hpp"
#include "etude/loop/progress.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/metrics/running_mean.hpp"
#include "etude/model.hpp"
#include "etude/optim/create.hpp"
#include "etude/optim/lr_scheduler.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/optim/torch_optimizer.hpp"
#include "etude/trainer_options.hpp"

namespace etude {

ETUDE_INLINE CheckpointStore& TrainerCore::checkpoint_store() {
  if (!store) {
    store = std::make_unique<CheckpointStore>(args.output_dir, options.file_system);
    store->begin();
  }
  return *store;
}

ETUDE_INLINE void TrainerCore::remember_group_begin() {
  group_random_state = random_state(options.generators);
  group_buffers.clear();
  for (const auto& [name, buffer] : model.named_buffers())
    group_buffers.emplace_back(buffer, buffer.detach().clone());
}

ETUDE_INLINE TrainingProgress TrainerCore::current_progress() {
  auto now = progress;
  now.train_batch_size = args.per_device_train_batch_size;
  now.gradient_accumulation_steps = args.gradient_accumulation_steps;
  now.last_logged_step = last_logged_step;
  now.loss = loss.state();
  now.total_loss = total_loss.state();
  now.pending_logs = pending_logs.state();
  now.grad_norm = grad_norm.defined() ? std::optional(grad_norm.item<double>()) : std::nullopt;
  now.learning_rate = learning_rate;
  now.control = control;
  now.stop_reason = control.stop_reason;
  return now;
}

ETUDE_INLINE void TrainerCore::load_progress(const TrainingProgress& saved) {
  progress = saved;
  last_logged_step = saved.last_logged_step;
  loss.load_state(saved.loss);
  total_loss.load_state(saved.total_loss);
  pending_logs.load_state(saved.pending_logs);
  if (saved.grad_norm) grad_norm = torch::tensor(*saved.grad_norm, torch::kDouble);
  learning_rate = saved.learning_rate;
  control = saved.control;
  control.stop_reason = saved.stop_reason;
}

ETUDE_INLINE TrainerCore::TrainerCore() = default;
ETUDE_INLINE TrainerCore::~TrainerCore() = default;

ETUDE_INLINE void TrainerCore::initialise() {
  check_options(options);
  args = normalized(options.args);
  device = args.use_cpu || !torch::cuda::is_available() ? torch::kCPU : torch::kCUDA;
  make_model();
}

ETUDE_INLINE void TrainerCore::prepare_machine() const {
  if (device.is_cpu()) warn_of_slow_blas(args);
  keep_freed_memory();
}

ETUDE_INLINE void TrainerCore::save_model(const std::filesystem::path& directory) const {
  save_model_files(directory, model.state_dict(), default_max_shard_size,
                   options.file_system ? *options.file_system : default_file_system());
  if (options.processing_class) options.processing_class.save(directory);
}

ETUDE_INLINE void TrainerCore::make_model() {
  const auto seed = static_cast<std::uint64_t>(args.seed);
  args.full_determinism ? enable_full_determinism(seed) : set_seed(seed);
  model = options.model_init ? options.model_init() : options.model;
  if (!model) throw ArgumentError("model_init gave no model");
  lr_scheduler.reset();  // It points into the optimizer.
  optimizer.reset();
  model.to(device);
  if (const auto& loss_module = options.loss.module()) loss_module->to(device);
}

ETUDE_INLINE void TrainerCore::begin_training() {
  state = {};
  state_text = {};
  progress = {};
  control.should_training_stop = false;
  control.stop_reason.clear();
  last_logged_step = 0;
  loss = RunningMean(args.logging_nan_inf_filter);
  total_loss = RunningMean(true);
  grad_norm.reset();
  losses.clear();
  updating = false;
}

ETUDE_INLINE void TrainerCore::set_plan(std::int64_t max_steps, std::int64_t num_train_epochs) {
  state.max_steps = max_steps;
  state.num_train_epochs = num_train_epochs;
  state.train_batch_size = args.per_device_train_batch_size;
  state.logging_steps = absolute_steps(args.logging_steps, max_steps);
  state.eval_steps = absolute_steps(args.eval_steps.value_or(args.logging_steps), max_steps);
  state.save_steps = absolute_steps(args.save_steps, max_steps);
}

ETUDE_INLINE std::unique_ptr<DataLoader> TrainerCore::make_train_dataloader() const {
  return std::make_unique<DataLoader>(options.train_dataset, train_loader_options(options, args));
}

ETUDE_INLINE std::unique_ptr<DataLoader> TrainerCore::make_eval_dataloader(const Dataset& dataset) const {
  return std::make_unique<DataLoader>(dataset, eval_loader_options(options, args));
}

ETUDE_INLINE std::unique_ptr<Optimizer> TrainerCore::make_optimizer() {
  if (options.optimizer) return std::make_unique<TorchOptimizer>(options.optimizer, model.named_parameters());
  const auto module = model.module();
  return module ? etude::make_optimizer(args, *module)
                : etude::make_optimizer(args, model.named_parameters());
}

ETUDE_INLINE std::unique_ptr<LRScheduler> TrainerCore::make_scheduler(std::int64_t max_steps) {
  if (const auto& own = options.lr_scheduler) return own(*optimizer);
  return etude::make_scheduler(args, *optimizer, max_steps);
}

ETUDE_INLINE void TrainerCore::add_log_line(const Metrics& logs) {
  state.log_history.emplace_back();
  set_log_line(state.log_history.size() - 1, logs);
}

ETUDE_INLINE void TrainerCore::set_log_line(std::size_t line, const Metrics& logs) {
  auto& entry = state.log_history.at(line);
  entry = LogEntry(logs.begin(), logs.end());
  entry["step"] = state.global_step;
  state_text.forget_from(line);
}

ETUDE_INLINE void TrainerCore::drop_log_lines(std::size_t from) {
  state.log_history.resize(from);
  state_text.forget_from(from);
}

ETUDE_INLINE Metrics TrainerCore::take_logs() {
  const auto filtered = loss.filtered();
  Metrics logs{{"loss", take_loss()}};
  if (filtered > 0) logs["non_finite_losses"] = static_cast<double>(filtered);
  if (grad_norm.defined()) logs["grad_norm"] = grad_norm.item<double>();
  logs["learning_rate"] = learning_rate;
  return logs;
}

ETUDE_INLINE double TrainerCore::take_loss() {
  const auto updates = static_cast<double>(state.global_step - last_logged_step);
  const double mean = loss.sum() / updates;
  total_loss.add(mean, updates);
  loss.reset();
  last_logged_step = state.global_step;
  return mean;
}

}  // namespace etude
