#pragma once

#include <vector>

#include "etude/data/dataset.hpp"

namespace etude::inline v0 {

/// Joins datasets into one, which has the examples of the first dataset, then of the second, and so on. All
/// must have the same inputs and labels. A batch may mix examples of several datasets, so datasets that make
/// whole batches must give one row per example. Throws ArgumentError if there are no datasets, for a dataset
/// without an index or a size (such as a stream), for a dataset made by `parallel_streams`, and if only some
/// are `already_divided`. `fetch` throws DataError if the inputs or labels of different datasets don't fit
/// together.
Dataset concatenated(std::vector<Dataset> datasets);

}  // namespace etude::inline v0
