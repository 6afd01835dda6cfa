#pragma once

#include <torch/types.h>
#include <cmath>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "etude/events.hpp"
#include "etude/model/model.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// How to react to a spike in the loss: only warn, stop, or go back to the weights before it.
ETUDE_ENUM(LossSpikeAction, warn, stop, roll_back);

/// Steps whose updates were undone.
struct UndoneSteps {
  ETUDE_STRUCT(UndoneSteps, (std::int64_t, first, "the first step"), (std::int64_t, last, "the last step"));

  friend bool operator==(const UndoneSteps&, const UndoneSteps&) = default;
};

/// Finds spikes in the training loss and, with `roll_back`, goes back to the last good weights and skips the
/// data that caused the spike, as teams that train large language models do by hand (PaLM, OPT). A step's
/// loss is a spike if it isn't finite, or exceeds the median of the `window` losses before it by more than
/// `threshold` deviations: 1.4826 times the median absolute deviation, at least a hundredth of the median.
/// Unlike a mean, the two medians are hardly affected by the spikes themselves.
///
/// The losses stay on the device and are checked every `check_every_n_steps` steps, and at the last. If all
/// are good, weights, buffers and the optimizer's state are copied on their device; otherwise they are
/// restored. The step count and the schedule continue: undone steps are skipped, and recorded in
/// `state.undone`. Training stops after more than `max_rollbacks` roll-backs in a row. Put it before
/// callbacks that use the weights, such as ModelEmaCallback, whose average isn't rolled back.
///
/// Logs `loss_spikes`, the number of spikes so far, whenever there is one. A resumed run reads the earlier
/// losses from the checkpoint, and treats the checkpoint's weights as good.
///
/// Throws ArgumentError at the beginning of training for numbers out of range and for an optimizer that
/// evaluates its loss several times per step.
struct LossSpikeCallback {
  ETUDE_STRUCT(
      LossSpikeCallback,
      (LossSpikeAction, action, "reaction to a spike: warn, stop or roll_back", LossSpikeAction::roll_back),
      (double, threshold, "deviations above the median that make a spike" | above(0).or_just(INFINITY), 6.0),
      (std::int64_t, window, "losses to compare with" | at_least(2), 128),
      (std::int64_t, min_losses, "losses needed before a finite one can be a spike" | at_least(2), 32),
      (std::int64_t, check_every_n_steps, "steps between checks of the losses" | at_least(1), 16),
      (std::int64_t, max_rollbacks, "roll-backs in a row before training stops" | at_least(0), 3));

  struct State {
    ETUDE_STRUCT(State, (std::vector<double>, losses, "losses to compare with, oldest first"),
                 (std::vector<std::int64_t>, spikes, "steps with a spike"),
                 (std::vector<UndoneSteps>, undone, "the skipped steps"),
                 (std::int64_t, rollbacks_in_a_row, "roll-backs since the last good check", 0),
                 (std::vector<double>, pending, "losses since the last check, when a checkpoint is written"),
                 (bool, is_half_done, "the last of them belongs to an unfinished update", false));
  };
  State state = {};

  bool reads_parameters() const { return true; }

  void on(const TrainBegin& e);
  void on(const StepBegin&) { is_first = !std::exchange(state.is_half_done, false); }
  void on(const BackwardEnd& e);
  void on(const StepRestarted&) { is_first = true; }
  void on(const StepSkipped&) { is_first = true; }
  void on(const StepEnd& e);
  // Takes `SaveBegin&`, because a handler of `const SaveBegin&` would have to come after all callbacks that
  // add tensors.
  void on(SaveBegin& e);
  void on(const TrainEnd&);

  torch::Tensor unseen = {};                   ///< Losses of the steps since the last check.
  std::vector<torch::Tensor> slots = {};       ///< Views of `unseen`, one per step.
  std::size_t count = 0;                       ///< The number of losses in `unseen`.
  bool is_first = true;                        ///< The next micro-batch is the first of its step.
  std::vector<NamedTensor> good_weights = {};  ///< Copies of the model's parameters and buffers.
  std::vector<NamedTensor> good_state = {};    ///< Copies of the optimizer's state.
  std::int64_t good_step = 0;                  ///< The step after which the copies were made.

 private:
  void check(const Context& e) const;
  bool is_spike(double loss) const;
  /// The losses since the last check, summed over the processes.
  torch::Tensor sum_of_all(const Context& e) const;
  void look(const Context& e);
  void answer(const Context& e, double loss);
  void keep(const Context& e);
  void roll_back(const Context& e) const;
};

}  // namespace etude::inline v0
