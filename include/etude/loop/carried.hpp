#pragma once

#include "etude/checkpoint/model_files.hpp"
#include "etude/checkpoint/resume_point.hpp"
#include "etude/loop/run_position.hpp"
#include "etude/loop/run_settings.hpp"
#include "etude/loop/trained.hpp"

namespace etude::inline v0 {

namespace detail {

/// Gathers these tensors from the other processes, each named "ranks.RANK.NAME".
StateDict tensors_of_others(const Ranks& ranks, const StateDict& own);

/// Returns the carried state for a checkpoint: this process's tensors, and those of the other processes as
/// "ranks.RANK.NAME". If `in_group` (the middle of an accumulation group), also returns the state at the
/// group's beginning, as "group.NAME".
StateDict carried_state_of_all(const Ranks& ranks, const Trained& trained, bool in_group);

/// Keeps only this process's part of a checkpoint's carried state, at the position where the training
/// continues.
void take_own_carried(const RunSettings& run, const RunPosition& now, ResumePoint& point);

/// Gives the model copies of these tensors, on its device.
void load_carried(const RunSettings& run, const CarriedStates& carried, const CarriedTensors& tensors);

}  // namespace detail
}  // namespace etude::inline v0
