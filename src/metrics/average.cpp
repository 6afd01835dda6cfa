#include "etude/metrics/average.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <cstdint>

#include "etude/base/error.hpp"

namespace etude::inline v0::metrics {

Average resolved(Average average, std::int64_t classes) {
  if (average == Average::automatic) return classes == 2 ? Average::binary : Average::macro;
  if (average == Average::binary && classes != 2)
    throw ArgumentError(fmt::format(
        "average is binary and there are {} classes: must be micro, macro, weighted or none", classes));
  return average;
}

Metrics averaged(const std::string& name, Average average, const at::Tensor& values,
                 const at::Tensor& support, const at::Tensor& occurs, double otherwise) {
  const auto each = values.cpu().to(torch::kDouble).contiguous();
  const auto kind = resolved(average, each.size(0));
  if (kind == Average::micro)
    throw ArgumentError(fmt::format("average of {} is micro: must be macro, weighted or none", name));
  if (kind == Average::binary) return {{name, each[1].item<double>()}};
  if (kind == Average::none) {
    Metrics result;
    for (std::int64_t i = 0; i < each.size(0); ++i)
      result[fmt::format("{}_{}", name, i)] = each[i].item<double>();
    return result;
  }
  const auto there = occurs.cpu();
  const auto weights = kind == Average::macro ? there.to(torch::kDouble)
                                              : support.cpu().to(torch::kDouble).masked_fill(~there, 0);
  const auto total = weights.sum().item<double>();
  if (total == 0) return {{name, otherwise}};
  return {{name, (each.masked_fill(~there, 0) * weights).sum().item<double>() / total}};
}

}  // namespace etude::inline v0::metrics
