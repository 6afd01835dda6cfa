#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "etude/data/batch.hpp"

namespace etude::inline v0 {

/// Makes a batch from examples. Several workers call it concurrently. If it leaves the batch's `size` at 0,
/// `make_batch` determines it.
using DataCollator = std::function<Batch(std::vector<Example>)>;

/// The default collator: stacks each input and each label along a new first dimension. If shapes differ,
/// throws DataError with the tensor, both shapes and the examples; `indices`, if given, are the examples'
/// numbers in that message.
Batch default_data_collator(const std::vector<Example>& examples, std::span<const std::int64_t> indices = {});

}  // namespace etude::inline v0
