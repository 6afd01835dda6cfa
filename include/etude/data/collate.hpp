#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "etude/data/batch.hpp"

namespace etude {

/// Makes a batch of examples; with workers several threads call it at once. A batch whose `size` it leaves at
/// 0 is measured by `make_batch`.
using DataCollator = std::function<Batch(std::vector<Example>)>;

/// The collator for those who give none: each input and each label is stacked along a new first dimension.
/// Throws DataError that names the tensor, both shapes and the examples where they disagree; `indices`, if
/// given, are what it calls the examples.
Batch default_data_collator(const std::vector<Example>& examples, std::span<const std::int64_t> indices = {});

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/data/impl/collate.ipp"
#endif
