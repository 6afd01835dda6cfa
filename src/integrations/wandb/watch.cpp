#include "etude/integrations/wandb/watch.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "etude/model/model.hpp"

namespace etude::inline v0::detail {

std::optional<std::string> wandb_histogram(const torch::Tensor& tensor) {
  constexpr std::int64_t bins = 64;
  const torch::NoGradGuard no_grad;
  auto values = tensor.detach();
  std::int64_t zeros = 0;
  if (values.is_sparse()) {
    zeros = values.numel();
    values = values.coalesce().values();
    zeros -= values.numel();
  }
  values = values.reshape({-1});
  if (values.scalar_type() != torch::kFloat && values.scalar_type() != torch::kDouble)
    values = values.to(torch::kFloat);
  values = values.masked_select(values.isfinite());
  if (values.numel() == 0) return std::nullopt;

  // One copy, to wait for the device only once.
  const auto ends = torch::stack({values.min(), values.max()}).to(torch::kCPU, torch::kDouble);
  double least = ends[0].item<double>(), greatest = ends[1].item<double>();
  if (zeros > 0) {
    least = std::min(least, 0.0);
    greatest = std::max(greatest, 0.0);
  }
  std::vector<double> edges{least, greatest}, counts{static_cast<double>(values.numel() + zeros)};
  if (least < greatest) {
    const auto counted = values.histc(bins, least, greatest).to(torch::kCPU, torch::kDouble).contiguous();
    counts.assign(counted.data_ptr<double>(), counted.data_ptr<double>() + bins);
    edges.clear();
    for (std::int64_t i = 0; i <= bins; ++i)
      edges.push_back(i == bins ? greatest : least + (greatest - least) * static_cast<double>(i) / bins);
    if (zeros > 0) {
      const auto above = std::upper_bound(edges.begin(), edges.end(), 0.0) - edges.begin();
      counts[static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(above - 1, 0, bins - 1))] +=
          static_cast<double>(zeros);
    }
  }
  std::vector<std::int64_t> whole(counts.begin(), counts.end());
  return wandb_json({{"_type", "histogram"}, {"values", whole}, {"bins", edges}});
}

WandbItems wandb_histograms(const Context& e, bool gradients, bool parameters) {
  WandbItems items;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (auto histogram = wandb_histogram(tensor)) items.push_back({{name}, std::move(*histogram)});
  };
  for (const auto& [name, parameter] : e.model.named_parameters()) {
    if (gradients) add("gradients/" + name, parameter.grad());
    if (parameters) add("parameters/" + name, parameter);
  }
  return items;
}

}  // namespace etude::inline v0::detail
