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

namespace etude {

/// How the learning rate goes to `swa_lr`.
ETUDE_ENUM(AnnealingStrategy, cos, linear);

/// Averages the weights of the last epochs, and puts the average into the model when training has come to its
/// end: stochastic weight averaging. Follows PyTorch Lightning's callback of this name and
/// `torch.optim.swa_utils`: an equal share for each epoch; the running statistics of BatchNorm are computed
/// anew for the average, as cumulative means over the training set; with `swa_lr` the learning rates go there
/// within `annealing_epochs`, and stay.
///
/// What differs: the weights of the end of an epoch count, those of the last one too, where Lightning takes
/// those of an epoch's beginning; a pass over the data for the statistics is made only where there are
/// BatchNorm modules; checkpoints have the average as `swa_model.safetensors`, and a run that is resumed goes
/// on with it to the bit. From `swa_epoch_start` on `swa_lr` takes the place of the schedule, whatever that
/// is. Evaluations and checkpoints of the training are those of the weights that are trained. Of several
/// callbacks that put weights into the model at the end the last in the list decides.
///
/// BatchNorm modules are those of torch::nn; in a TorchScript module they keep the statistics that they have,
/// which is told. Throws ArgumentError where training begins for an option out of range, CheckpointError
/// where the average of a checkpoint doesn't fit.
struct StochasticWeightAveragingCallback {
  using this_callback = StochasticWeightAveragingCallback;
  static constexpr const char* file = "swa_model.safetensors";  ///< of a checkpoint

  ETUDE_STRUCT(StochasticWeightAveragingCallback,
               (double, swa_epoch_start,
                "the first epoch that counts, from 1; below 1, the share of all epochs that it is at", 0.8),
               (std::optional<double>, swa_lr,
                "learning rate of these epochs; unset is that of the schedule"),
               (std::int64_t, annealing_epochs, "epochs on the way to swa_lr; 0 is at once", 10),
               (AnnealingStrategy, annealing_strategy, "the way: cos or linear", AnnealingStrategy::cos),
               (std::int64_t, n_averaged, "epochs in the average so far", 0),
               (EpochCount, epochs, "those that are done"),
               (std::vector<double>, begin_lrs, "learning rates of the groups where they began to go there"));

  void on(const CheckpointLoaded& e);
  void on(const TrainBegin& e);
  void on(const EpochBegin& e);
  void on(const StepBegin& e);
  void on(const EpochEnd& e);
  void on(SaveBegin& e);
  void on(const TrainError&) { has_failed = true; }
  void on(const TrainEnd& e);

  /// The average, as `Model::load_state_dict` takes it, with the buffers that the model has. Throws Error
  /// where no epoch has counted yet.
  std::vector<NamedTensor> average() const;

  std::optional<AveragedWeights> weights = {};  ///< The average itself, from the beginning of training on.
  std::vector<NamedTensor> loaded = {};         ///< Of a checkpoint, until training begins.
  std::vector<double> lrs = {};                 ///< Those of this epoch; none before they begin to go.
  std::int64_t first_epoch = 0;                 ///< That counts, from 0.
  bool is_running = false;
  bool has_failed = false;

 private:
  void check(const Context& e);
  void renew_statistics(const Context& e) const;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/stochastic_weight_averaging.ipp"
#endif
