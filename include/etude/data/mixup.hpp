#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>

#include "etude/data/batch.hpp"
#include "etude/data/random.hpp"

namespace etude {

struct MixingOptions {
  /// The two examples' shares are drawn from Beta(alpha, alpha): near 0 one of them has nearly all, 1 is
  /// uniform.
  double alpha = 1;
  /// Classes of whole-number labels [N], which become probabilities [N, num_classes]. 0: labels are floating
  /// numbers already.
  std::int64_t num_classes = 0;
  /// The share of the batches to mix; the others get the same kind of labels.
  double probability = 1;
};

/// Each example becomes a weighted sum of itself and the one before it in the batch (the last, for the
/// first), and so do their labels: mixup (Zhang and others 2018). A batch has one share for all. The loss
/// must take probabilities, as CrossEntropyLoss does.
///
/// The batch has one input, of floating numbers, and one label. Throws DataError for others and for labels
/// that aren't classes, ArgumentError for options that can't be.
Batch mix_up(Batch batch, const MixingOptions& options, at::Generator& generator = data_generator());

/// The same with a rectangle of the image [N, ..., height, width] cut out and filled with that of the one
/// before it; labels have the shares of the areas: CutMix (Yun and others 2019).
Batch cut_mix(Batch batch, const MixingOptions& options, at::Generator& generator = data_generator());

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/data/impl/mixup.ipp"
#endif
