#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "etude/trainer_options.hpp"

namespace etude::inline v0 {

class CheckpointStore;
class FolderReader;
struct ResumePoint;
struct SavedOptimizer;
struct StateReport;
struct TrainerState;
struct TrainingProgress;

/// Reads a checkpoint and checks each file against the manifest. Throws CheckpointError.
ResumePoint read_resume_point(FolderReader& folder);

/// Loads the state from a checkpoint, including Hugging Face's. Unknown keys, from another version, are
/// skipped.
TrainerState load_trainer_state(const std::filesystem::path& checkpoint);

/// Finds the checkpoint that `resume` asks for; nullopt if none is required. In `output_dir`, that is the
/// newest complete one; incomplete ones are reported and skipped. Throws CheckpointError if a required
/// checkpoint is missing, if the one at a given path can't be used, or if there are checkpoints but none can
/// be read.
std::optional<ResumePoint> find_resume_point(const TrainOptions::Resume& resume, const CheckpointStore& store,
                                             const TrainingArguments& args);

namespace detail {

/// The training's position in a checkpoint; unset if it has none. Throws CheckpointError.
std::optional<TrainingProgress> read_progress(FolderReader& folder);

/// Throws CheckpointError for numbers that no training reaches.
void check_place(const ResumePoint& point);

/// True if the run of `checkpoint` ended at that step, according to `output_dir/trainer_state.json`.
bool ended_in_good_order(const ResumePoint& checkpoint);

/// Describes each argument that differs from the checkpoint's. The current values are used.
std::vector<std::string> changed_arguments(const ResumePoint& checkpoint, const TrainingArguments& args);

/// Sets the batch size of `args` to the one that fitted into memory when the checkpoint was written, unless
/// the `asked` batch size has changed since.
void use_found_batch_size(const ResumePoint& checkpoint, const TrainingArguments& asked,
                          TrainingArguments& args);

/// True if the learning rates of the remaining steps must be computed from the arguments.
bool rates_are_new(const std::vector<std::string>& differences, const TrainerState& then,
                   std::int64_t max_steps);

/// True if a schedule that follows a metric now follows a different metric, or follows it in the other
/// direction.
bool is_another_metric(const std::vector<std::string>& differences);

/// Returns the `options` of an optimizer without invalid learning rates, which a schedule or callback had
/// set; the schedule sets them again.
nlohmann::ordered_json without_spoilt_rates(nlohmann::ordered_json options);

/// Loads whatever fits the requested optimizer. An optimizer of another type starts with fresh moments.
void load_optimizer(const SavedOptimizer& saved, Optimizer& optimizer,
                    const std::vector<std::string>& arguments, bool& rates_are_new, StateReport& report);

/// Loads an optimizer's schedule from its `file`. The optimizer may have updated its parameters in only some
/// of the steps up to `step`.
void load_scheduler(const SavedOptimizer& saved, const std::filesystem::path& file, std::int64_t step,
                    LRScheduler& scheduler, bool joins_each_step, bool rates_are_new,
                    std::vector<std::string>& problems);

/// Computes the position in the data at which another program wrote its checkpoint, as Hugging Face's Trainer
/// does.
TrainingProgress progress_by_steps(const TrainerState& state, const TrainingArguments& args,
                                   std::int64_t updates_per_epoch);

}  // namespace detail
}  // namespace etude::inline v0
