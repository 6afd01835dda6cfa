#include "etude/optim/block_quantization.hpp"

#include <ATen/ops/bucketize.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/from_blob.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <mutex>

#include "etude/optim/one_pass.hpp"

namespace etude::inline v0::detail {

DynamicMap::DynamicMap(bool has_sign) {
  std::size_t count = 0;
  values_[count++] = 0;
  values_[count++] = 1;
  // The values in a decade are the centres of equal intervals.
  for (int decade = 0; decade < 7; ++decade) {
    const int items = has_sign ? 1 << decade : 2 << decade;
    for (int i = 0; i < items; ++i) {
      const auto value = static_cast<float>(std::pow(10, decade - 6) * (0.1 + 0.9 * (i + 0.5) / items));
      values_[count++] = value;
      if (has_sign) values_[count++] = -value;
    }
  }
  std::ranges::sort(values_);
  for (std::size_t i = 0; i + 1 < values_.size(); ++i) upper_bounds_[i] = (values_[i] + values_[i + 1]) / 2;
  upper_bounds_.back() = std::numeric_limits<float>::infinity();
  if (!has_sign) upper_bounds_[0] = 0;
  for (std::uint32_t i = 0; i < lowest_.size(); ++i) {
    const bool is_negative = i >= lowest_.size() / 2;
    const auto smallest = std::bit_cast<float>(i << 16 | (is_negative ? 0xffffu : 0));
    lowest_[i] =
        static_cast<std::uint8_t>(std::ranges::lower_bound(upper_bounds_, smallest) - upper_bounds_.begin());
  }
}

void dequantize_block(const DynamicMap& map, const std::uint8_t* codes, float absmax, std::int64_t size,
                      BlockValues& values) {
  const auto count = static_cast<std::size_t>(size);
  for (std::size_t i = 0; i < count; ++i) values[i] = map.values()[codes[i]] * absmax;
  std::fill(values.begin() + size, values.end(), 0.f);
}

float quantize_block(const DynamicMap& map, const BlockValues& values, std::int64_t size,
                     std::uint8_t* codes) {
  using Lane = Lanes<float>;
  constexpr std::int64_t line = 4 * Lane::size;
  std::array<Lane, 4> largest{0., 0., 0., 0.};
  for (std::int64_t i = 0; i < quantization_block; i += line)
    for (std::size_t j = 0; j < 4; ++j) {
      const Lane x = Lane::load(values.data() + i + static_cast<std::int64_t>(j) * Lane::size);
      largest[j] = max(largest[j], max(x, x * -1));
    }
  const Lane all = max(max(largest[0], largest[1]), max(largest[2], largest[3]));
  float absmax = 0;
  for (int i = 0; i < Lane::size; ++i)
    if (all.vector[i] > absmax || std::isnan(all.vector[i])) absmax = all.vector[i];
  BlockValues ratios;
  const Lane divisor(absmax == 0 ? 1 : static_cast<double>(absmax));
  for (std::int64_t i = 0; i < quantization_block; i += Lane::size)
    (Lane::load(values.data() + i) / divisor).store(ratios.data() + i);
  for (std::int64_t i = 0; i < size; ++i) codes[i] = map.code(ratios[static_cast<std::size_t>(i)]);
  return absmax;
}

DynamicMap::Tables DynamicMap::on(const torch::Device& device) const {
  const std::lock_guard lock(mutex_);
  Tables& tables = tables_[{device.type(), device.index()}];
  if (!tables.values.defined()) {
    const auto copied = [&](const std::array<float, 256>& numbers) {
      return at::from_blob(const_cast<float*>(numbers.data()), {256}, at::kFloat).to(device);
    };
    tables = {copied(values_), copied(upper_bounds_)};
  }
  return tables;
}

namespace {

/// Repeats each block's scale for its elements, as a vector.
torch::Tensor spread(const torch::Tensor& absmax, std::int64_t elements) {
  return absmax.unsqueeze(1).expand({-1, quantization_block}).flatten().narrow(0, 0, elements);
}

}  // namespace

torch::Tensor dequantized(const DynamicMap& map, const torch::Tensor& codes, const torch::Tensor& absmax,
                          at::ScalarType type) {
  const torch::Tensor values = map.on(codes.device()).values.index_select(0, codes.flatten().to(at::kInt));
  return values.mul_(spread(absmax, codes.numel())).view(codes.sizes()).to(type);
}

void quantize(const DynamicMap& map, const torch::Tensor& values, const torch::Tensor& codes,
              const torch::Tensor& absmax) {
  const torch::Tensor flat = values.flatten().to(at::kFloat);
  const std::int64_t blocks = absmax.size(0), padding = blocks * quantization_block - flat.size(0);
  absmax.copy_(at::constant_pad_nd(flat, {0, padding}).view({blocks, quantization_block}).abs().amax(1));
  const torch::Tensor divisor = absmax.masked_fill(absmax == 0, 1);
  const torch::Tensor ratios = flat / spread(divisor, flat.size(0));
  const torch::Tensor bounds = map.on(codes.device()).upper_bounds.narrow(0, 0, 255);
  codes.copy_(at::bucketize(ratios, bounds, /*out_int32=*/true).view(codes.sizes()));
}

}  // namespace etude::inline v0::detail
