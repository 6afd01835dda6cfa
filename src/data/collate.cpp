#include "etude/data/collate.hpp"

#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace etude::inline v0 {
namespace detail {

namespace {

Tensors stack(std::string_view kind, const std::vector<Example>& examples, Tensors Example::*part,
              std::span<const std::int64_t> indices) {
  const Tensors& first = examples.front().*part;
  const auto differs = [&](std::string_view what, const std::string& one, const std::string& other,
                           std::size_t i) {
    return fmt::format("{} must be the same for all examples of a batch: {} in example {}, {} in example {}",
                       what, one, indices.empty() ? 0 : indices[0], other,
                       indices.empty() ? static_cast<std::int64_t>(i) : indices[i]);
  };
  for (std::size_t i = 1; i < examples.size(); ++i) {
    const Tensors& other = examples[i].*part;
    if (other.size() != first.size() || other.names() != first.names())
      throw DataError(differs(fmt::format("the {}s", kind), describe(first), describe(other), i));
    for (std::size_t t = 0; t < first.size(); ++t) {
      if (other[t].sizes() == first[t].sizes() && other[t].scalar_type() == first[t].scalar_type()) continue;
      throw DataError(fmt::format(
          "{}; {}",
          differs(fmt::format("{} {}", kind, first.title(t)), describe(first[t]), describe(other[t]), i),
          other[t].sizes() == first[t].sizes() ? "convert them to one type"
                                               : "a data_collator can pad them"));
    }
  }
  std::size_t position = 0;
  return first.transform([&](const torch::Tensor&) {
    std::vector<torch::Tensor> column;
    column.reserve(examples.size());
    for (const auto& example : examples) column.push_back((example.*part)[position]);
    ++position;
    return at::stack(column);
  });
}

}  // namespace

}  // namespace detail

Batch default_data_collator(const std::vector<Example>& examples, std::span<const std::int64_t> indices) {
  if (examples.empty()) throw DataError("there are no examples to make a batch of");
  return {detail::stack("input", examples, &Example::inputs, indices),
          detail::stack("label", examples, &Example::labels, indices),
          static_cast<std::int64_t>(examples.size())};
}

}  // namespace etude::inline v0
