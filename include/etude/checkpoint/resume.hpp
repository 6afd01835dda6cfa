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

/// Reads a checkpoint, each file checked against the manifest. Throws CheckpointError.
ResumePoint read_resume_point(FolderReader& folder);

/// Loads the state from a checkpoint, Hugging Face's included. Unknown keys, from another version, are
/// skipped.
TrainerState load_trainer_state(const std::filesystem::path& checkpoint);

/// Finds the checkpoint that `resume` asks for; nullopt if none is required. In `output_dir` it is the newest
/// complete one; others are reported and skipped. Throws CheckpointError if a required one is missing, if the
/// one at a path can't be used, or if there are some and none can be read.
std::optional<ResumePoint> find_resume_point(const TrainOptions::Resume& resume, const CheckpointStore& store,
                                             const TrainingArguments& args);

namespace detail {

/// The position of a checkpoint's training; unset if it has none. Throws
/// CheckpointError.
std::optional<TrainingProgress> read_progress(FolderReader& folder);

/// Throws CheckpointError for numbers that no training reaches.
void check_place(const ResumePoint& point);

/// Whether the run of `checkpoint` ended at that step, according to `output_dir/trainer_state.json`.
bool ended_in_good_order(const ResumePoint& checkpoint);

/// Describes each argument that differs from the checkpoint's; the current ones win.
std::vector<std::string> changed_arguments(const ResumePoint& checkpoint, const TrainingArguments& args);

/// Sets the batch size of `args` to the one that fitted into memory at the checkpoint, unless the `asked` one
/// has changed since.
void use_found_batch_size(const ResumePoint& checkpoint, const TrainingArguments& asked,
                          TrainingArguments& args);

/// Whether the learning rates of the remaining steps are computed from the arguments.
bool rates_are_new(const std::vector<std::string>& differences, const TrainerState& then,
                   std::int64_t max_steps);

/// Whether a schedule that follows a metric follows another one now, or in the other direction.
bool is_another_metric(const std::vector<std::string>& differences);

/// The `options` of an optimizer without the learning rates that can't be, which a schedule or callback has
/// set; the schedule sets those again.
nlohmann::ordered_json without_spoilt_rates(nlohmann::ordered_json options);

/// Loads whatever fits the requested optimizer; an optimizer of another kind starts with fresh moments.
void load_optimizer(const SavedOptimizer& saved, Optimizer& optimizer,
                    const std::vector<std::string>& arguments, bool& rates_are_new, StateReport& report);

/// Loads the schedule of an optimizer, which may not have joined each step up to `step`, from its `file`.
void load_scheduler(const SavedOptimizer& saved, const std::filesystem::path& file, std::int64_t step,
                    LRScheduler& scheduler, bool joins_each_step, bool rates_are_new,
                    std::vector<std::string>& problems);

/// Another program's position in the data, computed as Hugging Face's Trainer does.
TrainingProgress progress_by_steps(const TrainerState& state, const TrainingArguments& args,
                                   std::int64_t updates_per_epoch);

}  // namespace detail
}  // namespace etude::inline v0
