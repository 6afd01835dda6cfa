#include "etude/model/label_smoothing.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <optional>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"

namespace etude::inline v0 {

torch::Tensor label_smoothed_cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels,
                                           double factor, std::optional<double> num_items) {
  const bool fits = logits.is_floating_point() && logits.dim() == labels.dim() + 1 &&
                    c10::isIntegralType(labels.scalar_type(), false) &&
                    logits.sizes().slice(0, static_cast<std::size_t>(labels.dim())) == labels.sizes();
  if (!fits)
    throw DataError(
        fmt::format("the output {} and the labels {}: label smoothing needs scores [..., classes] and whole "
                    "numbers [...]",
                    describe(logits), describe(labels)));
  const auto log_probabilities = logits.log_softmax(-1);
  const auto counts = labels.ne(-100);
  const auto classes = labels.to(torch::kLong).clamp_min(0).unsqueeze(-1);
  const auto likelihood = log_probabilities.gather(-1, classes).squeeze(-1);
  const auto mean = log_probabilities.mean(-1);
  const auto each = -((1 - factor) * likelihood + factor * mean).where(counts, torch::zeros_like(mean));
  return num_items ? each.sum() / *num_items : each.sum() / counts.sum();
}

}  // namespace etude::inline v0
