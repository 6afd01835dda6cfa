#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "attempt.hpp"
#include "etude/data/batch.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/step_graph.hpp"
#include "etude/model/modules.hpp"
#include "etude/optim/flat_parameters.hpp"
#include "etude/parallel/gradient_reducer.hpp"
#include "etude/trainer_options.hpp"
#include "micro_batches.hpp"
#include "optimizer_steps.hpp"
#include "step_strategy.hpp"
#include "work_under_way.hpp"

namespace etude::inline v0 {

/// How an update ended.
enum class UpdateResult {
  no_batches,  // the epoch has none left
  given_up,    // callbacks have stopped the training between two micro-batches
  skipped,     // no optimizer has made its step, since the gradients overflowed or weren't finite
  done
};

/// Makes updates of the weights. The code of `run` shows the order of its parts.
class Update {
 public:
  /// Both must outlive this.
  Update(EventSource& events, WorkUnderWay& work) : events_(events), core_(events.core()), work_(work) {}

  /// Called in a training once its optimizers exist.
  void begin_training();
  /// Called before another phase makes other optimizers.
  void end_training();

  /// Makes an update with the next micro-batches of `source`, and advances the training past them. All
  /// processes return the same result; if one throws to stop, all throw. `examples`: the number in the epoch,
  /// in full batches.
  UpdateResult run(BatchSource& source, double examples);

  // These functions replace `run` if the program computes the losses in its own loop. Call `take_losses`
  // once. For each update call `remember` and `begin_losses`, then `add_loss`, `add_loss_of` and `make_step`
  // as often as the program calls them, then `complete`.

  /// Throws ArgumentError, and changes nothing, for options and callbacks that need the batches.
  void take_losses();
  /// Called before the program's forward passes, to remember what they change.
  void remember();
  void begin_losses();
  /// Adds the gradients of a loss, for all parameters or for those of one optimizer.
  void add_loss(const LossOutput& computed, std::optional<std::size_t> optimizer);
  /// Computes the loss of a batch, and adds its gradients.
  void add_loss_of(Batch batch);
  /// Makes the step of one optimizer before the steps of the others.
  void make_step(std::size_t optimizer);
  /// Called when a micro-batch other than the last is done.
  void end_micro_batch() { events_.raise<SubstepEnd>(); }
  /// Makes the steps that are left, and advances the training past the update.
  UpdateResult complete(double examples);

  /// Keeps the loss of each group, for `loss`.
  void keep_loss() { keeps_loss_ = true; }
  const torch::Tensor& loss() const { return loss_; }

  /// The number of this process's micro-batches in the last update.
  std::int64_t size() const { return size_; }

 private:
  // The parts of `run`, in their order.
  void begin();
  void meet_others(Attempt& own);
  bool add_gradients();
  GradientsResult reduce(const Attempt& own);
  void make_steps();
  void advance(const DataPosition& next, double epoch, bool has_stepped);

  /// The last part of `run`: from here on, nothing is repeated.
  UpdateResult conclude(const DataPosition& next, double examples);
  void make_strategy(StepSharing sharing);

  /// Throws ArgumentError for a callback that would not be called when a step is replayed.
  void check_events_in_graph() const;
  /// Computes the gradients of the only micro-batch and makes its step, both in the graph.
  void make_captured_step();
  /// The parameters of each optimizer.
  std::vector<FlatParameters*> parameters() const;

  /// Runs the micro-batches that are left of the group; false if it was given up.
  bool run_micro_batches();
  /// The same, in parts small enough to fit into memory.
  bool run_parts_that_fit();
  void run_micro_batch(Batch& batch);
  void run_part(Batch& given);
  /// Adds the gradients of the optimizer whose turn it is, from its own loss.
  void add_gradients_in_turn();
  GradientsResults finish_gradients(GradientsResult result);
  /// Throws DataError unless a process may lack batches while others have some.
  void check_may_lack_batches(const GradientsResults& all) const;
  /// Whether all processes must do the same in a backward pass.
  bool is_on_one_path() const { return core_.sharded_units || strategy_->is_on_one_path(); }

  EventSource& events_;
  TrainerCore& core_;
  WorkUnderWay& work_;
  MicroBatches batches_{events_};
  OptimizerSteps steps_{events_, batches_};
  std::unique_ptr<StepStrategy> strategy_;
  std::optional<StepGraph> graph_;        // with `cuda_graph`
  std::shared_ptr<ModulesImpl> targets_;  // null if no module follows another
  bool is_captured_ = false;              // the update runs through the graph
  bool keeps_loss_ = false;
  torch::Tensor loss_;
  std::int64_t size_ = 0;
  double waited_ = 0;                          // the time waited for other processes before the update
  std::optional<GradientsResults> abandoned_;  // of a group that another process gave up before its end
};

}  // namespace etude::inline v0
