#include "etude/loop/unknown_divisor.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "etude/base/message.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// Whether labels in CPU memory contain -100. Checks them without an operator.
bool has_ignored(const torch::Tensor& labels) {
  if (!labels.is_cpu() || labels.scalar_type() != torch::kLong || !labels.is_contiguous()) return false;
  const auto* const begin = labels.data_ptr<std::int64_t>();
  return std::find(begin, begin + labels.numel(), -100) != begin + labels.numel();
}

}  // namespace

}  // namespace detail

void UnknownDivisor::begin(const std::vector<Batch>& micro_batches, const std::vector<double>& shares) {
  are_unequal_ = false;
  if (warned_) return;
  const auto examples = [&](std::size_t i) {  // over all processes
    return shares[i] > 0 ? std::llround(static_cast<double>(micro_batches[i].size) / shares[i]) : 0;
  };
  const auto labels = [&](std::size_t i) {
    const auto& batch = micro_batches[i];
    return batch.labels.empty() ? std::pair<std::int64_t, std::int64_t>(0, 1)
                                : std::pair(batch.labels[0].numel(), std::max<std::int64_t>(batch.size, 1));
  };
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    const auto [count, size] = labels(i);
    const auto [first_count, first_size] = labels(0);
    are_unequal_ |= examples(i) != examples(0) || count * first_size != first_count * size;
    for (const auto& tensor : micro_batches[i].labels) are_unequal_ |= detail::has_ignored(tensor);
  }
}

void UnknownDivisor::warn(std::string_view loss) {
  if (std::exchange(warned_, true)) return;
  message(
      args_, LogLevel::warning,
      "parts of a batch have unequal sizes, or labels of -100, and nothing says what {} is divided by: the "
      "parts count by their examples, so the weights may differ from those of a training on whole batches; "
      "a loss module of torch::nn, or a loss that takes the number of items, is exact",
      loss);
}

}  // namespace etude::inline v0
