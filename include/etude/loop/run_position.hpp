#pragma once

#include <optional>

#include "etude/checkpoint/training_progress.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/loop/calls.hpp"
#include "etude/loop/remote_control.hpp"
#include "etude/trainer_control.hpp"
#include "etude/trainer_state.hpp"

namespace etude::inline v0 {

/// An evaluation or prediction under way.
struct Evaluation {
  const DataLoader& loader;
  bool is_prediction;
  std::optional<double> num_items = {};  ///< of the current batch, if the loss counts items
};

/// Whether a trainer is idle, in a training, or in the steps of one of its epochs.
enum class Activity { idle, training, steps };

/// The stages and position of a run, and the requests to it.
struct RunPosition {
  TrainerState state;
  TrainerControl control;
  TrainingProgress progress;    ///< see `TrainerCore::current_progress`
  TrainerRunConfig run_config;  ///< the plan of the training
  Activity activity = Activity::idle;
  /// An optimizer is running, or an exception has interrupted it: weights and moments belong to no step.
  bool updating = false;
  Evaluation* evaluation = nullptr;  ///< the innermost one under way
  bool evaluation_is_due = false;    ///< The training requested it, so it handles errors and signals.
  mutable Calls calls;
  RemoteControl remote;  ///< requests from other threads

  bool is_training() const { return activity != Activity::idle; }
  bool is_predicting() const { return evaluation && evaluation->is_prediction; }
  /// Whether an evaluation now would be within the steps of an epoch.
  bool is_intermediate() const { return activity == Activity::steps; }
  bool stopping() const { return control.should_training_stop || control.should_epoch_stop; }
};

}  // namespace etude::inline v0
