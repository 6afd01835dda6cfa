#pragma once

#include "etude/checkpoint/model_files.hpp"
#include "etude/checkpoint/resume_point.hpp"

namespace etude::inline v0 {

struct TrainerCore;

/// Throws ArgumentError, at the start of a training, for arguments with which a model can't carry state from
/// batch to batch.
void check_carried_state(const TrainerCore& core);

namespace detail {

/// The contents of a checkpoint's file of carried state: that of this process, and of the others as
/// "ranks.RANK.NAME"; in the middle of an accumulation group also, as "group.NAME", that of its beginning.
StateDict carried_state_of_all(const TrainerCore& core);

/// Keeps of a checkpoint's carried state that of this process, at the place where the training continues.
void take_own_carried(const TrainerCore& core, ResumePoint& point);

/// Gives the model copies of these tensors, on its device.
void load_carried(const TrainerCore& core, const CarriedTensors& tensors);

}  // namespace detail
}  // namespace etude::inline v0
