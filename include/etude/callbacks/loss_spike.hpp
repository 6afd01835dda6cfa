#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "etude/events.hpp"
#include "etude/model/model.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// What is done about a spike of the loss: nothing but to tell of it, to stop, or to go back to the weights
/// of before.
ETUDE_ENUM(LossSpikeAction, warn, stop, roll_back);

/// Steps whose updates were undone.
struct UndoneSteps {
  ETUDE_STRUCT(UndoneSteps, (std::int64_t, first, "the first of them"), (std::int64_t, last, "the last"));

  friend bool operator==(const UndoneSteps&, const UndoneSteps&) = default;
};

/// Finds spikes of the training loss and, by `roll_back`, goes on from the last good weights without the data
/// that led there, as teams that train large language models do by hand (PaLM, OPT). A step's loss is a spike
/// if it isn't finite, or lies above the median of the `window` losses before it by more than `threshold`
/// deviations: 1.4826 times the median absolute deviation, at least a hundredth of the median. Neither is
/// moved by what it is to find, as a mean is.
///
/// The losses stay on the device, and are looked at every `check_every_n_steps` steps, and at the last. Where
/// all is well then, weights, buffers and the optimizer's state are copied, on their device; where not, they
/// are put back. Steps and the schedule go on counting: the steps that are undone are skipped, and noted in
/// `undone`. More than `max_rollbacks` in a row stop the training. Stands before callbacks that look at the
/// weights, such as ModelEmaCallback, whose average keeps what it has taken.
///
/// Logs `loss_spikes`, the spikes so far, when there is one. A run that is resumed has the losses of before
/// as the checkpoint has them, and its weights as good ones.
///
/// Throws ArgumentError where training begins for numbers out of range and for an optimizer that evaluates
/// its loss several times a step.
struct LossSpikeCallback {
  using this_callback = LossSpikeCallback;
  ETUDE_STRUCT(LossSpikeCallback,
               (LossSpikeAction, action, "what is done: warn, stop or roll_back", LossSpikeAction::roll_back),
               (double, threshold, "deviations above the median that make a spike", 6.0),
               (std::int64_t, window, "losses that one is compared with", 128),
               (std::int64_t, min_losses, "losses without which none is a spike, unless it isn't finite", 32),
               (std::int64_t, check_every_n_steps, "steps from one look at the losses to the next", 16),
               (std::int64_t, max_rollbacks, "how often in a row to go back before training stops", 3),
               (std::vector<double>, losses, "those to compare with, the oldest first"),
               (std::vector<std::int64_t>, spikes, "steps that had one"),
               (std::vector<UndoneSteps>, undone, "what was skipped"),
               (std::int64_t, rollbacks_in_a_row, "since the last good look", 0),
               (std::vector<double>, pending, "losses since the last look, when a checkpoint is written"),
               (bool, is_half_done, "the last of them is of an update under way", false));

  void on(const TrainBegin& e);
  void on(const StepBegin&) { is_first = !std::exchange(is_half_done, false); }
  void on(const BackwardEnd& e);
  void on(const StepRestarted&) { is_first = true; }
  void on(const StepEnd& e);
  // Not const: it doesn't matter where this stands among those who add tensors.
  void on(SaveBegin&);
  void on(const TrainEnd&);

  torch::Tensor unseen = {};                   ///< Losses of the steps since the last look.
  std::vector<torch::Tensor> slots = {};       ///< Views of them, one for each step.
  std::size_t count = 0;                       ///< How many of them there are.
  bool is_first = true;                        ///< The next micro-batch is the first of its step.
  std::vector<NamedTensor> good_weights = {};  ///< Copies of the model's parameters and buffers.
  std::vector<NamedTensor> good_state = {};    ///< Copies of the optimizer's state.
  std::int64_t good_step = 0;                  ///< Up to which they hold what was learnt.

 private:
  void check(const Context& e) const;
  bool is_spike(double loss) const;
  void look(const Context& e);
  void answer(const Context& e, double loss);
  void keep(const Context& e);
  void roll_back(const Context& e) const;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/loss_spike.ipp"
#endif
