#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/events.hpp"
#include "etude/integrations/wandb/records.hpp"

namespace etude::detail {

/// A tensor's values as Weights & Biases shows them: how many lie in each of 64 bins from the least to the
/// greatest, as its own `watch` counts them. Those that aren't finite are left out; nothing if all are. What
/// a sparse tensor doesn't store counts as zeros.
std::optional<std::string> wandb_histogram(const torch::Tensor& tensor);

/// Histograms of a model's gradients and parameters.
WandbItems wandb_histograms(const Context& e, bool gradients, bool parameters);

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/wandb/impl/histogram.ipp"
#endif
