#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "etude/data/batch.hpp"

namespace etude::inline v0 {

enum class PaddingSide { right, left };

/// A data_collator for examples of different lengths: pads each tensor along its first dimension to the
/// longest in the batch and stacks them, like Hugging Face's DataCollatorWithPadding and
/// DataCollatorForTokenClassification.
///
/// Throws DataError, with the tensor and the examples, if examples differ in more than their lengths, and if
/// a tensor's dtype can't hold its padding value.
struct PaddingCollator {
  /// The padding value of inputs not listed in `values`.
  double input_value = 0;
  /// The padding value of labels not listed in `values`: ignored by LibTorch's losses.
  double label_value = -100;
  /// Padding values of inputs and labels by tensor name.
  std::map<std::string, double> values = {{"labels", -100}, {"label", -100}};
  /// Names of the tensors to pad; all others must have the same shape. Empty: all with at least one
  /// dimension.
  std::vector<std::string> names = {};
  /// Lengths are rounded up to a multiple of this: 8 suits tensor cores.
  std::int64_t pad_to_multiple_of = 1;
  PaddingSide side = PaddingSide::right;
  /// The name of a mask to add to the inputs, unless there is one: 1 for values of the first padded input, 0
  /// for padding; int64 [examples, length]. Empty: adds none.
  std::string attention_mask = {};

  Batch operator()(std::vector<Example> examples) const;
};

}  // namespace etude::inline v0
