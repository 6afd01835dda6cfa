#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/trainer_options.hpp"

namespace etude {

class CheckpointStore;
class FolderReader;
struct ResumePoint;
struct StateReport;
struct TrainerState;
struct TrainingProgress;

/// Reads a checkpoint, each file checked against the manifest. Throws CheckpointError.
ResumePoint read_resume_point(FolderReader& folder);

/// The state that a checkpoint was written in, one of Hugging Face's too. Keys that it doesn't know, of
/// another version, are passed over.
TrainerState load_trainer_state(const std::filesystem::path& checkpoint);

/// The checkpoint that `resume` means; nothing where there may be none. Of those in `output_dir` it is the
/// newest that is whole: others are told of and passed over. Throws CheckpointError if there is none, or the
/// one at a path can't be used; where there may be none, too, if there are some and none can be read.
std::optional<ResumePoint> find_resume_point(const TrainOptions::Resume& resume, const CheckpointStore& store,
                                             const TrainingArguments& args);

namespace detail {

/// Throws CheckpointError for numbers that no training comes to.
void check_place(const ResumePoint& point);

/// Whether the run of `checkpoint` came to its end at that step: `output_dir/trainer_state.json` says so.
bool ended_in_good_order(const ResumePoint& checkpoint);

/// What is told of arguments that aren't those of the checkpoint; those given now win.
std::vector<std::string> changed_arguments(const ResumePoint& checkpoint, const TrainingArguments& args);

/// Sets the batch size of `args` to the one that memory had room for at the checkpoint, unless the one that
/// was `asked` for is another than then.
void use_found_batch_size(const ResumePoint& checkpoint, const TrainingArguments& asked,
                          TrainingArguments& args);

/// Whether the learning rates of the steps to come are to be computed from the arguments.
bool rates_are_new(const std::vector<std::string>& differences, const TrainerState& then,
                   std::int64_t max_steps);

/// The optimizer that was asked for keeps what fits it: its moments start anew if it is of another kind.
void load_optimizer(const ResumePoint& checkpoint, Optimizer& optimizer,
                    const std::vector<std::string>& arguments, bool& rates_are_new, StateReport& report);

void load_scheduler(const ResumePoint& checkpoint, LRScheduler& scheduler, bool rates_are_new,
                    std::vector<std::string>& problems);

/// Where another program's checkpoint is in the data, as Hugging Face's Trainer reckons it.
TrainingProgress progress_by_steps(const TrainerState& state, const TrainingArguments& args,
                                   std::int64_t updates_per_epoch);

}  // namespace detail
}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/checkpoint/impl/resume.ipp"
#endif
