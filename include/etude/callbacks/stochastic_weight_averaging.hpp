#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "etude/callbacks/epoch_count.hpp"
#include "etude/events.hpp"
#include "etude/model/model.hpp"
#include "etude/optim/averaged_weights.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// How the learning rate approaches `swa_lr`.
ETUDE_ENUM(AnnealingStrategy, cos, linear);

/// Stochastic weight averaging: averages the weights of the last epochs, and puts the average into the model
/// when training is complete. Follows PyTorch Lightning's callback of this name and `torch.optim.swa_utils`:
/// all averaged epochs have equal weight; the running statistics of BatchNorm are recomputed for the average,
/// as cumulative means over the training set; with `swa_lr`, the learning rates reach that value within
/// `annealing_epochs`, and stay there.
///
/// Differences from Lightning: it averages the weights at the end of epochs, including the last one, rather
/// than at an epoch's beginning; it makes the extra pass over the data only if there are BatchNorm modules;
/// checkpoints contain the average as `swa_model.safetensors`, and a resumed run restores it exactly. From
/// `swa_epoch_start` on, `swa_lr` replaces any schedule. Evaluations and checkpoints during training use the
/// trained weights. If several callbacks load weights into the model at the end, the last in the list wins.
///
/// Only BatchNorm modules of torch::nn are supported; a BatchNorm in a TorchScript module keeps its
/// statistics, with a warning. Throws ArgumentError at the beginning of training for an option out of range,
/// and CheckpointError if a checkpoint's average doesn't fit the model.
struct StochasticWeightAveragingCallback {
  static constexpr const char* file = "swa_model.safetensors";  ///< in a checkpoint

  ETUDE_STRUCT(
      StochasticWeightAveragingCallback,
      (double, swa_epoch_start, "first averaged epoch, from 1; below 1, a fraction of all epochs", 0.8),
      (std::optional<double>, swa_lr, "learning rate of these epochs; unset is the schedule's" | above(0)),
      (std::int64_t, annealing_epochs, "epochs to reach swa_lr; 0 is at once" | at_least(0), 10),
      (AnnealingStrategy, annealing_strategy, "curve to swa_lr: cos or linear", AnnealingStrategy::cos));

  struct State {
    ETUDE_STRUCT(State, (std::int64_t, n_averaged, "epochs in the average so far", 0),
                 (EpochCount, epochs, "completed epochs"),
                 (std::vector<double>, begin_lrs, "the groups' learning rates when annealing began"));
  };
  State state = {};

  bool reads_parameters() const { return true; }

  void on(const CheckpointLoaded& e);
  void on(const TrainBegin& e);
  void on(const EpochBegin& e);
  void on(const StepBegin& e);
  void on(const EpochEnd& e);
  void on(SaveBegin& e);
  void on(const TrainError&) { has_failed = true; }
  void on(const TrainEnd& e);

  /// The average with the model's buffers, as `Model::load_state_dict` takes it. Throws Error if no epoch has
  /// been averaged yet.
  std::vector<NamedTensor> average() const;

  std::optional<AveragedWeights> weights = {};  ///< The average; unset before the first averaged epoch.
  std::vector<NamedTensor> loaded = {};         ///< From a checkpoint, until training begins.
  std::vector<double> lrs = {};  ///< This epoch's learning rates; empty before annealing begins.
  std::int64_t first_epoch = 0;  ///< The first averaged epoch, from 0.
  bool is_running = false;
  bool has_failed = false;

 private:
  void check(const Context& e);
  void renew_statistics(const Context& e) const;
};

}  // namespace etude::inline v0
