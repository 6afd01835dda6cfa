#pragma once

#include <cstdint>
#include <variant>
#include <vector>

namespace etude::inline v0 {

/// One row for each example, in the order of the examples.
struct RowPerExample {};

/// The tensor belongs to all examples as a whole, as the weights of classes do.
struct SharedByExamples {};

/// Consecutive rows for each example: `lengths` has their numbers, one for each example, 0 included.
struct RowsByLength {
  std::vector<std::int64_t> lengths;
};

/// Any number of rows for each example: `column` of a tensor [rows, columns, ...] has the number of the row's
/// example in its batch, counted from 0. A tensor [rows] consists of these numbers. In a part of a batch they
/// are counted from the part's first example; in the predictions and labels of a whole dataset, from its
/// first.
struct RowsByIndex {
  std::int64_t column = 0;
};

/// Where the rows of each example begin in another tensor, which has RowsByLength: [examples], or [examples +
/// 1] with the end of the last. In a part of a batch they begin with 0.
struct RowOffsets {};

/// How the rows of a tensor divide among the examples of its batch.
using Division = std::variant<RowPerExample, SharedByExamples, RowsByLength, RowsByIndex, RowOffsets>;

}  // namespace etude::inline v0
