#pragma once

#include <string>

#include "etude/data/dataset.hpp"
#include "etude/loop/core.hpp"

namespace etude::inline v0 {

/// Compares the training examples and the evaluation datasets of all processes: their sizes and checksums, as
/// far as these are known without running a program's own code. Throws DataError, in all processes, that says
/// which rank has which, unless they are the same or declared to be parts: see `already_divided`.
void check_same_data(const TrainerCore& core);

/// The same for one dataset, which the error calls `name`.
void check_same_data(const TrainerCore& core, const std::string& name, const Dataset& dataset);

}  // namespace etude::inline v0
