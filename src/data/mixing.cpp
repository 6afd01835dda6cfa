#include "etude/data/mixing.hpp"

#include <ATen/ops/_sample_dirichlet.h>
#include <ATen/ops/full.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

void check_mixing(const Batch& batch, const MixingOptions& options) {
  check_fields(options);
  if (batch.inputs.size() != 1 || !batch.inputs[0].is_floating_point())
    throw DataError(
        fmt::format("only one floating-point input can be mixed, not {}", describe(batch.inputs)));
  if (batch.labels.size() != 1)
    throw DataError(fmt::format("only one label can be mixed, not {}", describe(batch.labels)));
  check_row_per_example(batch, "each example is mixed with another, and ");
}

torch::Tensor mixable_labels(const torch::Tensor& labels, std::int64_t num_classes) {
  if (labels.is_floating_point() && num_classes == 0) return labels;
  if (labels.scalar_type() != torch::kLong || labels.dim() != 1 || num_classes == 0)
    throw DataError(
        fmt::format("labels are {}, num_classes is {}: must be int64 [N] with num_classes, or "
                    "floating-point with 0",
                    describe(labels), num_classes));
  // On a device, the kernel checks this: reading the values here would wait for the device.
  if (labels.is_cpu() && labels.numel() > 0) {
    const auto least = labels.min().item<std::int64_t>(), most = labels.max().item<std::int64_t>();
    if (least < 0 || most >= num_classes)
      throw DataError(fmt::format("labels are from {} to {}: must be from 0 to {}, below num_classes", least,
                                  most, num_classes - 1));
  }
  return at::one_hot(labels, num_classes).to(torch::kFloat);
}

bool is_chosen(double probability, at::Generator& generator) {
  return at::rand({1}, generator, torch::kDouble).item<double>() < probability;
}

/// The weight of an example in its mixture with another.
double draw_share(double alpha, at::Generator& generator) {
  return at::_sample_dirichlet(at::full({2}, alpha, torch::kDouble), generator)[0].item<double>();
}

torch::Tensor mixed(const torch::Tensor& tensor, double share) {
  return tensor * share + tensor.roll(1, 0) * (1 - share);
}

}  // namespace

}  // namespace detail

Batch mix_up(Batch batch, const MixingOptions& options, at::Generator& generator) {
  detail::check_mixing(batch, options);
  batch.labels[0] = detail::mixable_labels(batch.labels[0], options.num_classes);
  if (!detail::is_chosen(options.probability, generator)) return batch;
  const double share = detail::draw_share(options.alpha, generator);
  for (auto* tensors : {&batch.inputs, &batch.labels}) (*tensors)[0] = detail::mixed((*tensors)[0], share);
  return batch;
}

Batch cut_mix(Batch batch, const MixingOptions& options, at::Generator& generator) {
  detail::check_mixing(batch, options);
  const auto images = batch.inputs[0];
  if (images.dim() < 3 || images.numel() == 0)
    throw DataError(
        fmt::format("CutMix needs images [N, ..., height, width], not {}", describe(batch.inputs)));
  batch.labels[0] = detail::mixable_labels(batch.labels[0], options.num_classes);
  if (!detail::is_chosen(options.probability, generator)) return batch;

  // As in torchvision, the box has that share of the image's area, is centred at a random point, and is
  // clipped to the image.
  const double half_side = 0.5 * std::sqrt(1 - detail::draw_share(options.alpha, generator));
  auto result = images.clone(), box = result, other = images.roll(1, 0);
  std::int64_t area = 1;
  for (const std::int64_t dim : {-1, -2}) {
    const auto size = images.size(dim);
    const auto centre = at::randint(size, {1}, generator, torch::kLong).item<std::int64_t>();
    const auto half = static_cast<std::int64_t>(half_side * static_cast<double>(size));
    const auto begin = std::max<std::int64_t>(centre - half, 0);
    const auto length = std::min(centre + half, size) - begin;
    area *= length;
    box = box.narrow(dim, begin, length);
    other = other.narrow(dim, begin, length);
  }
  box.copy_(other);
  batch.inputs[0] = std::move(result);
  const auto whole = static_cast<double>(images.size(-1) * images.size(-2));
  batch.labels[0] = detail::mixed(batch.labels[0], 1 - static_cast<double>(area) / whole);
  return batch;
}

}  // namespace etude::inline v0
