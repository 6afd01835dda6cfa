#pragma once

#include <torch/types.h>

#include <optional>

namespace etude::inline v0 {

/// The cross entropy of `logits` [..., classes] and `labels` [...] (int64), smoothed by `factor` e from 0 to
/// 1: (1 - e) * -log p(label) + e * mean over the classes of -log p (Szegedy et al. 2016, arXiv:1512.00567;
/// Hugging Face's `LabelSmoother`). Labels of -100 are ignored. The result has one element: the mean over all
/// other labels or, if `num_items` is given, their sum divided by it.
///
/// Throws DataError for labels that aren't integers or whose shape isn't that of the logits without the last
/// dimension.
torch::Tensor label_smoothed_cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels,
                                           double factor, std::optional<double> num_items = {});

}  // namespace etude::inline v0
