#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/optim/model_freezer.hpp"
#include "etude/reflect/interval.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Trains only the last layer group of the model at first, then unfreezes the other groups one by one, from
/// the last to the first: gradual unfreezing as in ULMFiT (Howard & Ruder 2018, arXiv:1801.06146), which
/// unfreezes one in each epoch. `unfreeze_at = {"2ep"}` with the layer groups {"backbone", "head"} does the
/// same as Lightning's BackboneFinetuning. Parameters outside the groups are always trained, except those
/// that are frozen when training begins, which stay frozen.
///
/// The optimizer holds all parameters from the beginning, and skips frozen ones. The number of unfrozen
/// groups follows from the step and the epoch, so a resumed training continues exactly. At the end of the
/// training, all groups are unfrozen.
///
/// Throws ArgumentError before training for names that no module has, intervals other than epochs and steps,
/// more moments than groups to unfreeze, and `args.cuda_graph`.
struct GradualUnfreezingCallback {
  ETUDE_STRUCT(
      GradualUnfreezingCallback,
      (std::vector<std::string>, layer_groups,
       "modules from the first to the last, by names or patterns such as layers.*; empty is the "
       "model's children"),
      (Interval, unfreeze_every, "epochs or steps between two groups", "1ep"),
      (std::vector<Interval>, unfreeze_at,
       "the moment for each group from the last but one on, instead of unfreeze_every; groups without "
       "one stay frozen"),
      (bool, freeze_batch_norms, "freeze the batch norms of frozen groups too", false),
      (bool, set_modules_as_eval, "keep frozen groups in evaluation mode", false));

  void on(const TrainBegin& e);
  void on(const EpochBegin& e) { unfreeze(e); }
  void on(const StepEnd& e) { unfreeze(e); }
  void on(const TrainEnd&);

  std::optional<ModelFreezer> freezer = {};  // in a training
  std::size_t unfrozen = 0;                  // groups

 private:
  void check(const Context& e) const;
  std::size_t due(const Context& e) const;
  void unfreeze(const Context& e);
};

}  // namespace etude::inline v0
