#pragma once

#include <vector>

#include "etude/data/dataset.hpp"

namespace etude::inline v0 {

/// Several datasets as one, in this order: the examples of the first, then those of the second, and so on.
/// All must make the same inputs and labels; a batch may have examples of several, for which datasets that
/// make whole batches must give a row for each example. Throws ArgumentError for no datasets, for a stream or
/// another one without an index or a size, for one that `parallel_streams` laid out, and for a mixture of
/// those that are `already_divided` and others. Its `fetch` throws DataError if the inputs or labels of
/// different datasets don't fit together.
Dataset concatenated(std::vector<Dataset> datasets);

}  // namespace etude::inline v0
