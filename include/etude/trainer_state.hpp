#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// One line of the history: the logged values, with their "step" and "epoch".
using LogEntry = std::map<std::string, nlohmann::json>;

/// The progress of a training and its history; written to every checkpoint as `trainer_state.json`.
struct TrainerState {
  ETUDE_STRUCT(TrainerState, (double, epoch, "epochs done, counted in update steps", 0.0),
               (std::int64_t, global_step, "update steps done", 0),
               (std::int64_t, max_steps, "update steps planned", 0),
               (std::int64_t, logging_steps,
                "update steps from one log to the next; 0 if logs don't depend on steps", 500),
               (std::int64_t, eval_steps,
                "update steps from one evaluation to the next; 0 if evaluations don't depend on steps", 500),
               (std::int64_t, save_steps,
                "update steps from one checkpoint to the next; 0 if checkpoints don't depend on steps", 500),
               (std::optional<std::int64_t>, train_batch_size, "examples per batch on this process"),
               (std::int64_t, num_train_epochs, "epochs planned, rounded up", 0),
               (std::int64_t, num_input_tokens_seen, "input tokens trained on", 0),
               (double, total_flos, "floating-point operations done", 0.0),
               (std::vector<LogEntry>, log_history, "logged values, oldest first"),
               (std::optional<double>, best_metric, "best value of metric_for_best_model so far"),
               (std::optional<std::int64_t>, best_global_step, "the step at which it was measured"),
               (std::optional<std::string>, best_model_checkpoint, "the checkpoint of that step"),
               (bool, is_local_process_zero, "whether this is the first process on this machine", true),
               (bool, is_world_process_zero, "whether this is the first of all processes", true),
               (bool, is_hyper_param_search, "whether this is a trial of a hyperparameter search", false),
               (std::optional<std::string>, trial_name, "the trial's name"),
               (nlohmann::json, trial_params, "the trial's hyperparameters"),
               (nlohmann::json, stateful_callbacks, "the state of each callback that has one, by class name",
                nlohmann::json::object()));

  friend bool operator==(const TrainerState&, const TrainerState&) = default;
};

/// The configuration of a run, set once its data is known. It has the same names and schedule placeholders as
/// pytorch-accelerated's run configuration. All step counts are update steps.
struct TrainerRunConfig {
  ETUDE_STRUCT(TrainerRunConfig, (std::int64_t, num_epochs, "epochs planned, rounded up", 0),
               (std::int64_t, train_per_device_batch_size, "examples per training batch and device", 0),
               (std::int64_t, eval_per_device_batch_size, "examples per evaluation batch and device", 0),
               (std::int64_t, gradient_accumulation_steps, "batches per update step", 1),
               (double, gradient_clip_norm, "gradients are clipped to this norm; 0 is off", 0.0),
               (double, gradient_clip_value, "each element of the gradients is clipped to this; 0 is off",
                0.0),
               (std::int64_t, train_total_batch_size, "examples per update step, over all processes", 0),
               (std::int64_t, eval_total_batch_size, "examples per evaluation batch, over all processes", 0),
               (std::int64_t, num_update_steps_per_epoch, "update steps per epoch", 0),
               (std::int64_t, num_local_update_steps_per_epoch,
                "update steps per epoch with data from this process", 0),
               (std::int64_t, max_num_train_steps, "update steps planned", 0),
               (std::int64_t, train_dataloader_len, "training batches per epoch on this process", 0),
               (std::optional<std::int64_t>, eval_dataloader_len,
                "evaluation batches, before any limit; unset if unknown"),
               (bool, is_local_process_zero, "whether this is the first process on this machine", true),
               (bool, is_world_process_zero, "whether this is the first of all processes", true),
               (bool, is_distributed, "whether there are several processes", false),
               (std::int64_t, num_processes, "number of processes", 1));

  friend bool operator==(const TrainerRunConfig&, const TrainerRunConfig&) = default;
};

}  // namespace etude::inline v0
