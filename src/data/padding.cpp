#include "etude/data/padding.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/data/collate.hpp"
#include "etude/data/tensors.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

bool can_hold(torch::ScalarType dtype, double value) {
  if (c10::isFloatingType(dtype) || c10::isComplexType(dtype)) return true;
  if (value != std::floor(value)) return false;
  if (dtype == torch::kBool) return value == 0 || value == 1;
  const auto bits = static_cast<int>(8 * c10::elementSize(dtype));
  return c10::isSignedType(dtype) ? value >= -std::ldexp(1, bits - 1) && value < std::ldexp(1, bits - 1)
                                  : value >= 0 && value < std::ldexp(1, bits);
}

/// Pads the examples of one batch in place.
class Padding {
 public:
  Padding(const PaddingCollator& options, std::vector<Example>& examples)
      : options_(options), examples_(examples) {}

  void pad(std::string_view kind, Tensors Example::*part, double value) {
    const auto count = (examples_.front().*part).size();
    for (std::size_t t = 0; t < count; ++t) {
      const auto& names = (examples_.front().*part).names();
      const auto name = names.empty() ? std::string() : names[t];
      if (!wants(name, (examples_.front().*part)[t])) continue;
      const auto found = options_.values.find(name);
      const auto label = fmt::format("{} {}", kind, (examples_.front().*part).title(t));
      pad_tensor(label, part, t, found == options_.values.end() ? value : found->second);
    }
  }

  /// Adds the mask of the first padded input.
  void add_mask(const std::string& name) {
    if (mask_lengths_.empty() || examples_.front().inputs.find(name)) return;
    for (std::size_t i = 0; i < examples_.size(); ++i) {
      auto& inputs = examples_[i].inputs;
      auto mask = at::zeros({padded_length_}, at::kLong);
      place(mask, mask_lengths_[i]).fill_(1);
      std::vector<torch::Tensor> tensors(inputs.begin(), inputs.end());
      auto names = inputs.names();
      tensors.push_back(std::move(mask));
      if (!names.empty()) names.push_back(name);
      inputs = Tensors(std::move(tensors), std::move(names));
    }
  }

 private:
  bool wants(const std::string& name, const torch::Tensor& tensor) const {
    return options_.names.empty() ? tensor.dim() > 0 : std::ranges::count(options_.names, name) > 0;
  }

  // The part of a padded tensor that holds the example.
  torch::Tensor place(const torch::Tensor& padded, std::int64_t length) const {
    return padded.narrow(0, options_.side == PaddingSide::left ? padded.size(0) - length : 0, length);
  }

  void pad_tensor(const std::string& label, Tensors Example::*part, std::size_t t, double value) {
    const auto first = (examples_.front().*part)[t];
    std::int64_t longest = 0;
    std::vector<std::int64_t> lengths;
    for (std::size_t i = 0; i < examples_.size(); ++i) {
      const auto& tensor = (examples_[i].*part)[t];
      if (tensor.dim() == 0 || tensor.dim() != first.dim() || tensor.scalar_type() != first.scalar_type() ||
          tensor.sizes().slice(1) != first.sizes().slice(1))
        throw DataError(fmt::format(
            "{} must be the same for all examples of a batch, except for its first dimension, which "
            "is padded: {} in the first, {} in number {} of the batch",
            label, describe(first), describe(tensor), i + 1));
      lengths.push_back(tensor.size(0));
      longest = std::max(longest, tensor.size(0));
    }
    const auto multiple = options_.pad_to_multiple_of;
    longest = (longest + multiple - 1) / multiple * multiple;
    if (part == &Example::inputs && mask_lengths_.empty()) {
      mask_lengths_ = lengths;
      padded_length_ = longest;
    }
    for (std::size_t i = 0; i < examples_.size(); ++i) {
      if (lengths[i] == longest) continue;
      if (!can_hold(first.scalar_type(), value))
        throw DataError(fmt::format("{} can't be padded with {}: {} can't hold it", label, value,
                                    dtype_name(first.scalar_type())));
      auto& tensor = (examples_[i].*part)[t];
      auto sizes = tensor.sizes().vec();
      sizes[0] = longest;
      auto padded = at::full(sizes, value, tensor.options().requires_grad(false));
      place(padded, lengths[i]).copy_(tensor.detach());
      tensor = std::move(padded);
    }
  }

  const PaddingCollator& options_;
  std::vector<Example>& examples_;
  std::vector<std::int64_t> mask_lengths_;
  std::int64_t padded_length_ = 0;
};

}  // namespace

}  // namespace detail

Batch PaddingCollator::operator()(std::vector<Example> examples) const {
  if (pad_to_multiple_of < 1)
    throw ArgumentError(fmt::format("pad_to_multiple_of is {}: must be at least 1", pad_to_multiple_of));
  if (examples.empty()) throw DataError("there are no examples to make a batch of");
  const auto has_those_of_first = [&](const Example& other) {
    const auto same = [](const Tensors& a, const Tensors& b) {
      return a.size() == b.size() && a.names() == b.names();
    };
    return same(other.inputs, examples.front().inputs) && same(other.labels, examples.front().labels);
  };
  if (std::ranges::all_of(examples, has_those_of_first)) {
    detail::Padding padding(*this, examples);
    padding.pad("input", &Example::inputs, input_value);
    padding.pad("label", &Example::labels, label_value);
    if (!attention_mask.empty()) padding.add_mask(attention_mask);
  }
  return default_data_collator(examples);  // throws DataError that describes the difference
}

}  // namespace etude::inline v0
