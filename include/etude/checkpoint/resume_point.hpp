#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "etude/checkpoint/model_files.hpp"
#include "etude/checkpoint/training_progress.hpp"
#include "etude/data/program_state.hpp"
#include "etude/io/manifest.hpp"
#include "etude/libtorch/random_state.hpp"
#include "etude/model/carried_state.hpp"
#include "etude/optim/lr_scheduler.hpp"
#include "etude/trainer_state.hpp"

namespace etude::inline v0 {

/// The content of the files of one optimizer and its schedule. A checkpoint may lack any of them.
struct SavedOptimizer {
  std::optional<StateDict> state;
  std::optional<nlohmann::ordered_json> options;
  std::optional<SchedulerState> scheduler;
};

/// A checkpoint as read from disk: complete, but not applied yet.
struct ResumePoint {
  std::filesystem::path path;
  std::optional<Manifest> manifest;  ///< unset if another program wrote the checkpoint
  StateDict model;
  TrainerState state;
  std::optional<TrainingProgress> progress;
  std::map<std::string, SavedOptimizer> optimizers = {};  ///< by name
  std::optional<nlohmann::ordered_json> training_args;
  RandomState random = {},
              group_random = {};  ///< at the checkpoint, and when its unfinished accumulation began
  std::string sampler = {};
  StateDict half_done;
  CarriedTensors carried = {}, group_carried = {};  ///< at the same two times
  /// The variables of each process, by rank; unset if the checkpoint has none.
  std::optional<std::vector<SavedVariables>> program_state;
};

}  // namespace etude::inline v0
