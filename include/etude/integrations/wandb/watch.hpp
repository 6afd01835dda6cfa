#pragma once

#include <torch/types.h>

#include <optional>
#include <string>

#include "etude/events.hpp"
#include "etude/integrations/wandb/records.hpp"

namespace etude::inline v0::detail {

/// A tensor's histogram in the form of Weights & Biases: 64 bins from the least to the greatest value,
/// counted as wandb's `watch` does. Non-finite values are left out; nullopt if all are. Values that a sparse
/// tensor doesn't store count as zeros.
std::optional<std::string> wandb_histogram(const torch::Tensor& tensor);

/// Histograms of a model's gradients and parameters.
WandbItems wandb_histograms(const Context& e, bool gradients, bool parameters);

}  // namespace etude::inline v0::detail
