#pragma once

#include <torch/types.h>

#include <cstdint>

#include "etude/data/dataset.hpp"

namespace etude::inline v0 {

/// Lays out `windows`, consecutive parts of one sequence, as parallel streams for truncated backpropagation
/// through time. With W windows, batch t has the windows t, W/streams + t, 2W/streams + t, ..., so each row
/// of a batch continues the same row of the previous batch. If W isn't a multiple of `streams`, the windows
/// left over at the end are dropped.
///
/// A DataLoader doesn't shuffle this dataset. Its batches must have `streams` examples over all processes, so
/// that each process has the same rows in every batch. Throws ArgumentError if `streams` is less than 1, and
/// DataError for a dataset without an index or a size, or with fewer windows than streams.
Dataset parallel_streams(Dataset windows, std::int64_t streams);

/// Lays out one long text as parallel streams: `tokens` [length], of any dtype, gives examples of inputs
/// [window] and targets [window], which are the inputs one token later. Each stream has length / streams
/// tokens, as in PyTorch's example word_language_model. The remainder is left out, and each stream's last
/// window may be shorter. Throws ArgumentError for `streams` or `window` less than 1, and DataError if
/// `tokens` isn't 1-dimensional or a stream would have fewer than 2 tokens.
Dataset token_streams(const torch::Tensor& tokens, std::int64_t streams, std::int64_t window);

}  // namespace etude::inline v0
