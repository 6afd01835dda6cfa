#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "etude/data/batch.hpp"

namespace etude {

enum class PaddingSide { right, left };

/// A data_collator for examples of different lengths: each tensor is padded along its first dimension to the
/// longest of the batch, and they are stacked. What DataCollatorWithPadding and
/// DataCollatorForTokenClassification of Hugging Face do.
///
/// Throws DataError that names the tensor and the examples where examples differ in more than their lengths,
/// or where a tensor's dtype can't hold its padding value.
struct PaddingCollator {
  /// What inputs are padded with, unless `values` says otherwise.
  double input_value = 0;
  /// What labels are padded with, unless `values` says otherwise: what LibTorch's losses leave out.
  double label_value = -100;
  /// The padding of tensors by name, of inputs and labels.
  std::map<std::string, double> values = {{"labels", -100}, {"label", -100}};
  /// Which tensors to pad, by name; the others must be of one shape. Empty: all that have a dimension.
  std::vector<std::string> names = {};
  /// Lengths are rounded up to a multiple of it: 8 suits tensor cores.
  std::int64_t pad_to_multiple_of = 1;
  PaddingSide side = PaddingSide::right;
  /// An input of this name to add, unless it is there: 1 where the first padded input is, 0 where it is
  /// padding. int64 [examples, length]. Empty: none.
  std::string attention_mask = {};

  Batch operator()(std::vector<Example> examples) const;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/data/impl/padding.ipp"
#endif
