#pragma once

#include <cstdint>
#include <optional>

#include "etude/reflect/struct.hpp"

namespace etude {

/// The facts of a run, known once its data is: what pytorch-accelerated calls the run configuration, its
/// names and its placeholders of schedules. All counts of steps are of update steps.
struct TrainerRunConfig {
  ETUDE_STRUCT(
      TrainerRunConfig, (std::int64_t, num_epochs, "epochs planned, a started one counted in full", 0),
      (std::int64_t, train_per_device_batch_size, "examples of one training batch on one device", 0),
      (std::int64_t, eval_per_device_batch_size, "examples of one evaluation batch on one device", 0),
      (std::int64_t, gradient_accumulation_steps, "batches whose gradients make one update step", 1),
      (double, gradient_clip_norm, "gradients are clipped to this norm; 0 is off", 0.0),
      (double, gradient_clip_value, "each element of the gradients is clipped to this; 0 is off", 0.0),
      (std::int64_t, train_total_batch_size, "examples of one update step, on all processes", 0),
      (std::int64_t, eval_total_batch_size, "examples of one evaluation batch, on all processes", 0),
      (std::int64_t, num_update_steps_per_epoch, "update steps of an epoch", 0),
      (std::int64_t, num_local_update_steps_per_epoch, "those that this process sees the data of", 0),
      (std::int64_t, max_num_train_steps, "update steps planned", 0),
      (std::int64_t, train_dataloader_len, "training batches of an epoch on this process", 0),
      (std::optional<std::int64_t>, eval_dataloader_len,
       "evaluation batches, before any limit; unset if unknown"),
      (bool, is_local_process_zero, "the first process of this machine", true),
      (bool, is_world_process_zero, "the first process of all", true),
      (bool, is_distributed, "there are several processes", false),
      (std::int64_t, num_processes, "how many there are", 1));

  friend bool operator==(const TrainerRunConfig&, const TrainerRunConfig&) = default;
};

}  // namespace etude
