#include "etude/optim/bfloat16.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>

namespace etude::inline v0::detail {

/// Computes the same bits as `first` and `next`, with operators.
torch::Tensor RandomBits::bits(std::int64_t from, std::int64_t size, std::size_t rounding,
                               const torch::Device& device) const {
  // Masks 32 unsigned bits in an int64, since LibTorch lacks uint32 operators.
  constexpr std::int64_t word = 0xffffffff;
  const auto masked = [](const torch::Tensor& x) { return x.bitwise_and_(at::Scalar(word)); };
  const auto shifted = [](const torch::Tensor& x, std::int64_t by) {
    return x.bitwise_xor(x.bitwise_right_shift(at::Scalar(by)));
  };
  auto x = masked(at::arange(from, from + size, torch::TensorOptions().dtype(at::kLong).device(device))
                      .add_(static_cast<std::int64_t>(key_ & word)));
  x = masked(shifted(x, 16).mul_(0x21f0aaad)).bitwise_xor_(at::Scalar(static_cast<std::int64_t>(key_ >> 32)));
  x = shifted(masked(shifted(x, 15).mul_(static_cast<std::int64_t>(0xd35a2d97))), 15);
  const auto shifted_left = [&](const torch::Tensor& value, std::int64_t by) {
    return masked(value.bitwise_xor(value.bitwise_left_shift(at::Scalar(by))));
  };
  for (std::size_t i = 0; i < rounding / 2; ++i) x = shifted_left(shifted(shifted_left(x, 13), 17), 5);
  return rounding % 2 == 0 ? x.bitwise_and_(at::Scalar(0xffff)) : x.bitwise_right_shift(at::Scalar(16));
}

torch::Tensor in_float32(const torch::Tensor& values, const torch::Tensor& compensation) {
  const torch::Tensor result = values.to(at::kFloat);
  if (!compensation.defined()) return result;
  result.view(at::kInt).add_(compensation);
  return result;
}

void store_rounded(const torch::Tensor& to, const torch::Tensor& values, Rounding rounding,
                   const Bfloat16Rounding& by, std::size_t number) {
  if (rounding == Rounding::nearest) {
    to.copy_(values);
    return;
  }
  const torch::Tensor finite = values.masked_fill(values.isnan(), 0), bits = finite.view(at::kInt);
  if (rounding == Rounding::kahan) {
    by.compensation.copy_(bits.bitwise_left_shift(at::Scalar(16)).bitwise_right_shift(at::Scalar(16)));
    bits.add_(0x8000);
  } else {
    bits.add_(by.random.bits(by.first, values.numel(), number, values.device()).view(values.sizes()));
  }
  bits.bitwise_and_(at::Scalar(-0x10000));
  to.copy_(at::where(values.isnan(), values, finite));
}

}  // namespace etude::inline v0::detail
