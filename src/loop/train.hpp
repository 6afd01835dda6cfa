#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "checkpoints.hpp"
#include "etude/base/function_ref.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/base/scoped_value.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/plan.hpp"
#include "etude/loop/sharded_parameters.hpp"
#include "etude/trainer_options.hpp"
#include "phases.hpp"
#include "requests.hpp"
#include "training_summary.hpp"
#include "update.hpp"
#include "work_under_way.hpp"

namespace etude::inline v0 {

/// One training: epochs of update steps, each a group of micro-batches. The order of everything follows
/// Hugging Face's Trainer, except that a request in `control` stays until it is honoured, a stop is checked
/// before work begins, a group that is given up leaves no gradients, and every kind of stop is followed by
/// the last evaluation and checkpoint.
///
/// `run` is all of `train()`. `SteppedTraining` calls its parts as the program's own loop reaches them.
class TrainLoop {
 public:
  /// Where the batches come from: `train_dataset`, or a program's own loop.
  enum class Batches { of_dataset, of_program };

  explicit TrainLoop(EventSource& events, Batches batches = Batches::of_dataset)
      : events_(events), core_(events.core()), is_stepped_(batches == Batches::of_program) {}

  TrainOutput run(const TrainOptions& options);

  /// Runs the last part of a prepared training, and everything after it.
  TrainOutput finish_after(detail::FunctionRef<void()> run_part);

  /// Runs a part of a prepared training, and ends the training if an exception leaves it.
  void part(detail::FunctionRef<void()> run_part);

  /// Makes everything that the training needs, and loads the checkpoint that it resumes from. Opens no scope,
  /// so an exception leaves none to close.
  void prepare(const TrainOptions& options);

  /// Runs everything before the first epoch.
  void begin();

  /// Whether an epoch begins now, or continues.
  bool has_epoch() const;

  /// Opens an epoch, and calls `steps` to run its steps, unless only its end is left.
  void open_epoch(detail::FunctionRef<void()> steps);

  void close_epoch();

  /// Whether another step may begin. Waits while the training is paused.
  bool may_step();

  /// Makes the next update with a group of `batches`. Returns false if the epoch's steps are over.
  bool run_group(BatchSource& batches);

  /// The update under way of a program that computes the losses itself; see Update::take_losses.
  Update& update() { return update_; }
  /// Makes that update.
  void complete_update();

  /// Runs one part of the training. A `StopTraining` thrown from it closes the open scopes and becomes a
  /// request to stop.
  void stoppable(detail::FunctionRef<void()> part);

  /// Forgets a group that was given up.
  void leave_steps() { work_.forget_group(); }

  /// The loss of the last group: see `StepOutput`.
  const torch::Tensor& loss() const { return update_.loss(); }

  /// Called after everything that may change the program's variables before the first step.
  void settle_program_state() { checkpoints_.settle_program_state(); }

  /// Whether only the end of the open epoch is left.
  bool epoch_had_ended() const { return epoch_had_ended_; }

  bool stop_is_due() const;

  /// Why it stops, if a stop was requested.
  std::string stop_reason() const;

  /// Ends a training that nobody will finish.
  void abandon();

 private:
  void begin_trial(const std::optional<HyperparameterTrial>& trial);

  LoopState& loop_state() const { return core_.progress.loop; }

  /// Makes the loaders and plans of the phases that follow `done`.
  void plan_phases(const DonePhases& done);
  /// Takes the options, the loader and the plan of the next phase.
  void enter_planned_phase();
  /// Gives the core the plan of the phase under way and that of the whole training.
  void set_plan();
  /// Throws ArgumentError, before the first step, for settings that later phases would refuse.
  void check_later_phases();
  /// Makes the optimizers and schedules of the phase under way, and prepares updates with them.
  void make_optimizers();

  /// The steps of the phases after the one under way.
  std::int64_t later_steps() const;

  void run_phases();
  void open_phase(bool is_resumed);
  void close_phase();
  void enter_next_phase();
  bool phase_is_done() const;

  /// Enters the training at its beginning or, if it is resumed, at its saved position.
  void enter();

  void run_epochs();

  void begin_epoch();

  void begin_steps();

  void run_steps();

  /// Called when an update has been made.
  void end_step();

  /// Removes a skipped update from the plan, which counts one update for each group of batches.
  void skip_step();

  /// The number of skipped updates in the phase under way.
  std::int64_t skipped_steps() const {
    return core_.progress.skipped_steps - core_.progress.done_phases.skipped_steps;
  }
  /// The number of updates that the plan lost because they were skipped; none with `max_steps`, since the
  /// training then continues until it has made that many.
  std::int64_t skipped_of_plan() const { return core_.args.max_steps > 0 ? 0 : skipped_steps(); }

  /// Adds an epoch if skipped updates have left `max_steps` unreached.
  void extend_epochs();

  TrainOutput finish();

  /// Gathers the parameters of sharded units. Called after the last checkpoint: from then on, a process may
  /// read or load all parameters without the others.
  void gather_units();

  /// Cleans up after a training that doesn't reach its end.
  void end_early();

  void end_interrupted(const Interrupted& interrupted);

  /// Ends the process as the signal would have. Throws if the program's own handler for it returns.
  [[noreturn]] void end_by(int signal);

  /// A phase that is to come.
  struct Planned {
    std::size_t phase;  // its place
    std::unique_ptr<DataLoader> loader = nullptr;
    TrainPlan plan = {};
  };

  EventSource& events_;
  TrainerCore& core_;
  std::optional<Phases> phases_;
  std::deque<Planned> planned_;
  std::size_t phase_ = 0;  // the place of the one under way
  TrainPlan plan_;         // its end, counted from the beginning of the training
  double examples_ = 0;    // of the epoch under way, in full batches
  bool is_stepped_;
  bool epoch_had_ended_ = false;  // before the training was resumed
  bool epoch_was_stopped_ = false;
  TrainingSummary summary_{events_};
  TrainingCheckpoints checkpoints_{events_};
  WorkUnderWay work_{events_, checkpoints_};
  Update update_{events_, work_};
  Requests requests_{events_, checkpoints_, work_};
  std::size_t outside_ = 0;  // the depth of the events' scopes around the training
  std::optional<ScopedValue<Activity>> in_steps_;
  std::optional<SignalGuard> signals_;
  std::optional<detail::EndOfUnits> end_of_units_;
};

}  // namespace etude::inline v0
