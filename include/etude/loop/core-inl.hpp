#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "etude/checkpoint/background.hpp"
#include "etude/checkpoint/random_state.hpp"
#include "etude/checkpoint/snapshot_buffers.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/events.hpp"
#include "etude/linkage.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/progress.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/metrics/running_mean.hpp"
#include "etude/model.hpp"
#include "etude/optim/lr_scheduler.hpp"
#include "etude/optim/optimizer.hpp"
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

ETUDE_INLINE Context TrainerCore::context() {
  return {args,
          state,
          control,
          model,
          optimizer.get(),
          lr_scheduler.get(),
          train_dataloader.get(),
          eval_dataloader,
          options.processing_class ? &options.processing_class : nullptr,
          pending_logs};
}

}  // namespace etude
