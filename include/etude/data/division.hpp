#pragma once

#include <cstdint>
#include <variant>
#include <vector>

namespace etude::inline v0 {

/// One row for each example, in the order of the examples.
struct RowPerExample {};

/// A tensor that belongs to all examples together, such as class weights.
struct SharedByExamples {};

/// Consecutive rows for each example: `lengths` has the number of rows of each example, which may be 0.
struct RowsByLength {
  std::vector<std::int64_t> lengths;
};

/// Any number of rows for each example: `column` of a tensor [rows, columns, ...] holds the index of each
/// row's example in the batch, counted from 0. A tensor [rows] holds only these indices. In a part of a
/// batch, they count from the part's first example; in the predictions and labels of a whole dataset, from
/// the dataset's first.
struct RowsByIndex {
  std::int64_t column = 0;
};

/// The index at which each example's rows begin in another tensor, which has RowsByLength: [examples], or
/// [examples + 1] with the end of the last example's rows. In a part of a batch, the indices begin with 0.
struct RowOffsets {};

/// How the rows of a tensor are divided among the examples of its batch.
using Division = std::variant<RowPerExample, SharedByExamples, RowsByLength, RowsByIndex, RowOffsets>;

}  // namespace etude::inline v0
