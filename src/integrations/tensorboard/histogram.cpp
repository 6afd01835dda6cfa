#include "etude/integrations/tensorboard/histogram.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <limits>

namespace etude::inline v0::detail::tensorboard {

namespace {

std::vector<double> bucket_edges() {
  std::vector<double> edges;
  for (double edge = 1e-12; edge < 1e20; edge *= 1.1) edges.push_back(edge);
  std::vector<double> all(edges.rbegin(), edges.rend());
  for (auto& edge : all) edge = -edge;
  all.push_back(0);
  all.insert(all.end(), edges.begin(), edges.end());
  return all;
}

torch::Tensor numbers_in(const torch::Tensor& tensor) {
  auto numbers = tensor.detach();
  if (numbers.layout() == torch::kSparse) numbers = numbers.coalesce().values();
  if (numbers.layout() != torch::kStrided) numbers = numbers.to_dense();
  if (numbers.is_complex()) numbers = torch::view_as_real(numbers.resolve_conj());
  if (numbers.scalar_type() != torch::kDouble) numbers = numbers.to(torch::kFloat);
  return numbers.flatten();
}

}  // namespace

Histogram histogram_of(const at::Tensor& tensor) {
  static const std::vector<double> edges = bucket_edges();
  const torch::NoGradGuard no_grad;
  const auto numbers = numbers_in(tensor);
  const auto boundaries = torch::tensor(edges, torch::kDouble).to(numbers.options());
  const auto buckets = static_cast<std::int64_t>(edges.size()) + 1;  // including the two outside the edges
  auto counts = torch::zeros({buckets}, torch::kLong);
  Histogram result;
  // In parts, so a large tensor doesn't need several times its memory.
  for (const auto& part : numbers.split(std::int64_t{1} << 22)) {
    const auto finite = part.masked_select(part.isfinite());
    result.not_finite += part.numel() - finite.numel();
    if (finite.numel() == 0) continue;
    const auto wide = finite.device().is_mps() ? finite : finite.to(torch::kDouble);
    const auto summary = torch::stack({finite.min().to(wide.dtype()), finite.max().to(wide.dtype()),
                                       wide.sum(), wide.dot(wide)})
                             .to(torch::kCPU, torch::kDouble);
    const auto* number = summary.data_ptr<double>();
    result.min = result.num == 0 ? number[0] : std::min(result.min, number[0]);
    result.max = result.num == 0 ? number[1] : std::max(result.max, number[1]);
    result.sum += number[2];
    result.sum_squares += number[3];
    result.num += static_cast<double>(finite.numel());
    const auto places = torch::bucketize(finite, boundaries, /*out_int32=*/false, /*right=*/true);
    counts += torch::bincount(places, {}, buckets).to(torch::kCPU);
  }
  if (result.num == 0) return result;
  const auto* count = counts.data_ptr<std::int64_t>();
  std::int64_t first = 0, last = buckets - 1;
  while (count[first] == 0) ++first;
  while (count[last] == 0) --last;
  for (auto i = first; i <= last; ++i) {
    result.limits.push_back(i < buckets - 1 ? edges[static_cast<std::size_t>(i)]
                                            : std::numeric_limits<double>::max());
    result.counts.push_back(static_cast<double>(count[i]));
  }
  return result;
}

}  // namespace etude::inline v0::detail::tensorboard
