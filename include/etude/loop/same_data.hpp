#pragma once

#include <string>

#include "etude/data/data_loader.hpp"
#include "etude/data/dataset.hpp"
#include "etude/loop/run_settings.hpp"

namespace etude::inline v0 {

/// Compares the training examples, if there is a loader for them, and the evaluation datasets of all
/// processes: their sizes and checksums, as far as these are known without running a program's own code.
/// Unless they are the same, or are declared to be parts (see `already_divided`), throws DataError in all
/// processes, listing the data of each rank.
void check_same_data(const RunSettings& run, const DataLoader* train_dataloader);

/// The same for one dataset, which the error calls `name`.
void check_same_data(const Ranks& ranks, const std::string& name, const Dataset& dataset);

}  // namespace etude::inline v0
