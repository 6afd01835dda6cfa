#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "etude/reflect/struct.hpp"

namespace etude {

/// One line of the history: what was logged, with its "step" and "epoch".
using LogEntry = std::map<std::string, nlohmann::json>;

/// Where the training is, and what led there; written beside every checkpoint as `trainer_state.json`.
struct TrainerState {
  ETUDE_STRUCT(TrainerState, (double, epoch, "epochs done, counted in update steps", 0.0),
               (std::int64_t, global_step, "update steps done", 0),
               (std::int64_t, max_steps, "update steps planned", 0),
               (std::int64_t, logging_steps,
                "update steps from one log to the next; 0 if it isn't them that count", 500),
               (std::int64_t, eval_steps,
                "update steps from one evaluation to the next; 0 if it isn't them that count", 500),
               (std::int64_t, save_steps,
                "update steps from one checkpoint to the next; 0 if it isn't them that count", 500),
               (std::optional<std::int64_t>, train_batch_size, "examples of one batch on this process"),
               (std::int64_t, num_train_epochs, "epochs planned, a started one counted in full", 0),
               (std::int64_t, num_input_tokens_seen, "input tokens trained on", 0),
               (double, total_flos, "floating-point operations done", 0.0),
               (std::vector<LogEntry>, log_history, "what was logged, oldest first"),
               (std::optional<double>, best_metric, "best value of metric_for_best_model so far"),
               (std::optional<std::int64_t>, best_global_step, "the step at which it was reached"),
               (std::optional<std::string>, best_model_checkpoint, "the checkpoint of that step"),
               (bool, is_local_process_zero, "the first process of this machine", true),
               (bool, is_world_process_zero, "the first process of all", true),
               (bool, is_hyper_param_search, "one trial of a search over hyper-parameters", false),
               (std::optional<std::string>, trial_name, "the name of that trial"),
               (nlohmann::json, trial_params, "the parameters of that trial"),
               (nlohmann::json, stateful_callbacks, "the state of each callback that has one, by class name",
                nlohmann::json::object()));

  friend bool operator==(const TrainerState&, const TrainerState&) = default;
};

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
