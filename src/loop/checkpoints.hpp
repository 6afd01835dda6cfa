#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/checkpoint/resume.hpp"
#include "etude/data/program_state.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/plan.hpp"
#include "etude/loop/snapshot.hpp"

namespace etude::inline v0 {

/// The state at the beginning of unfinished work, together with the core's `work_begin`. An interruption
/// returns to it.
using SafePoint = Snapshot<part::Control, part::LogHistoryLines, part::Logs, part::Callbacks>;

/// Handles the checkpoints of one `train()`: resumes from one, and writes others.
///
/// A resumed training raises `TrainBegin` and, within an epoch, `EpochBegin` again, for callbacks that set
/// something up there; then everything that is saved is restored to the moment of the checkpoint.
class TrainingCheckpoints {
 public:
  explicit TrainingCheckpoints(EventSource& events);
  TrainingCheckpoints(const TrainingCheckpoints&) = delete;
  TrainingCheckpoints& operator=(const TrainingCheckpoints&) = delete;
  /// Waits for unfinished writes, and unlocks `output_dir`.
  ~TrainingCheckpoints();

  bool resumes() const { return point_ != nullptr; }
  /// True if the state in `output_dir` must be written: the run has written a checkpoint, or it resumed a
  /// training that hadn't ended in good order.
  bool has_news() const;
  const std::filesystem::path& path() const;

  /// Finds and reads the checkpoint to resume. Nothing is changed yet.
  void find(const TrainOptions::Resume& resume);

  /// The phases that the checkpoint has completed.
  DonePhases done_phases() const;

  /// Loads weights, state and position in the data. `plan` is the plan of the current phase. It is adapted to
  /// what is left of the phase, and counts from the training's beginning. `later_steps` is the number of
  /// steps in later phases.
  void load_training(TrainPlan& plan, std::int64_t later_steps);

  /// Loads the optimizer, the schedule, the callbacks' state and the program's variables, and reports what
  /// differs.
  void load_rest();

  /// Restores the program's variables a last time, after everything that may have changed them before the
  /// first step.
  void settle_program_state();

  /// Called after `TrainBegin` of a resumed training: changes made by its handlers are kept.
  void begun();

  /// Restores the generators and the model's carried state to the beginning of the half-done accumulation.
  void load_group_begin();

  /// Restores everything that handlers of repeated begin events may have changed.
  void put_back();
  /// Restores the model and its optimizers to their state after `TrainBegin`, with zero gradients.
  void put_back_model();

  void load_half_done();

  /// Writes a checkpoint, and announces it once it is on the disk.
  void save(std::string reason);

  /// Announces a checkpoint whose writing has finished; rethrows an exception from the writing.
  void poll();

  /// Waits for the checkpoint that is being written, and announces it.
  void announce();

  /// Called when a training ends early: writes a checkpoint of `point` or, without one, of the current state,
  /// unless that is already written. The callbacks keep their current state.
  void save_on_the_way_out(const char* reason, const SafePoint* point);

  /// Loads the weights of the best evaluation, if they were kept.
  void load_best();

 private:
  /// True if resuming there raises begin events again; their handlers may change the model.
  bool hears_again(const TrainingProgress& there) const;
  void find_point(const TrainOptions::Resume& resume, const CheckpointStore& store);
  /// Keeps only this process's generator states.
  void take_own_random();
  std::filesystem::path load_best_weights();
  void report(const std::filesystem::path& checkpoint);
  /// Returns to the beginning of unfinished work.
  void go_back(const SafePoint& point);
  /// Announces the checkpoint that the run resumes from: it may have been killed before all callbacks heard
  /// of it.
  void announce_again();
  void load_dataset_state(std::vector<std::string>& problems);
  /// Keeps this process's part of the saved variables, if the program has any.
  void take_own_program_state(std::vector<std::string>& problems);
  void load_program_state();
  /// Warns if the training examples differ from those of the checkpoint.
  void warn_of_another_dataset(const DatasetInfo& then) const;
  void warn_if_nothing_is_left(std::int64_t max_steps) const;
  bool same_place(const TrainingProgress& saved) const;
  void load_random(const RandomState& state);

  EventSource& events_;
  TrainerCore& core_;
  std::unique_ptr<ResumePoint> point_;
  std::optional<Snapshot<part::Callbacks, part::Control, part::Logs>> after_begin_;
  std::optional<TrainedState> model_after_begin_;
  std::optional<SavedVariables> program_state_;  // of the checkpoint, until the first step
  std::optional<std::pair<std::int64_t, TrainingProgress>> saved_;
};

}  // namespace etude::inline v0
