#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "etude/checkpoint/model_files.hpp"
#include "etude/checkpoint/progress.hpp"
#include "etude/io/manifest.hpp"
#include "etude/libtorch/random_state.hpp"
#include "etude/optim/lr_scheduler.hpp"
#include "etude/trainer_state.hpp"

namespace etude::inline v0 {

/// A checkpoint as read from disk: complete, and not applied yet.
struct ResumePoint {
  std::filesystem::path path;
  std::optional<Manifest> manifest;  ///< unset if another program wrote the checkpoint
  StateDict model;
  TrainerState state;
  std::optional<TrainingProgress> progress;
  std::optional<StateDict> optimizer;
  std::optional<nlohmann::ordered_json> optimizer_options;
  std::optional<SchedulerState> scheduler;
  std::optional<nlohmann::ordered_json> training_args;
  RandomState random, group_random;  ///< the latter: when the half-done accumulation began
  std::string sampler;
  StateDict half_done;
};

}  // namespace etude::inline v0
