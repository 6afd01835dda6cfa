#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>

#include "etude/data/batch.hpp"
#include "etude/data/random.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct MixingOptions {
  ETUDE_STRUCT(
      MixingOptions,
      (double, alpha,
       "the weights of the two examples are drawn from Beta(alpha, alpha): near 0 one example "
       "dominates, 1 is uniform" |
           above(0),
       1),
      (std::int64_t, num_classes,
       "the number of classes of integer labels [N], which become probabilities [N, num_classes]; 0: "
       "labels are already floating-point" |
           at_least(0),
       0),
      (double, probability,
       "the fraction of batches to mix; the others get labels of the same type" | between(0, 1), 1));
};

/// mixup (Zhang et al. 2018): mixes each example and its label with the previous example in the batch (the
/// first with the last one), as a weighted sum. The whole batch uses one weight. The loss must accept
/// probabilities, as CrossEntropyLoss does.
///
/// The batch must have one floating-point input and one label. Throws DataError for other batches and for
/// labels that aren't classes, ArgumentError for invalid options.
Batch mix_up(Batch batch, const MixingOptions& options, at::Generator& generator = data_generator());

/// CutMix (Yun et al. 2019): like `mix_up`, but replaces a rectangle of each image [N, ..., height, width]
/// with the same rectangle of the previous image, and weights the labels by area.
Batch cut_mix(Batch batch, const MixingOptions& options, at::Generator& generator = data_generator());

}  // namespace etude::inline v0
