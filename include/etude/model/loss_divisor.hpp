#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <optional>

#include "etude/data/tensors.hpp"

namespace etude::inline v0 {

/// The number by which a mean loss divides the sum over its items: of elements, of examples, of labels, or
/// the sum of their classes' weights. The mean of a whole is the mean of its parts, weighted by their
/// divisors.
class LossDivisor {
 public:
  explicit LossDivisor(double number) : number_(number) {}
  /// One element. On a device it stays unread, so that nothing waits for it.
  explicit LossDivisor(const torch::Tensor& element);

  /// Unset if it is on a device.
  std::optional<double> number() const { return number_; }
  /// The number, which this may wait for.
  double read() const;
  /// `number` or the element as a float64 tensor without dimensions.
  torch::Tensor tensor() const;

  /// Adds that of another part.
  LossDivisor& operator+=(const LossDivisor& other);

 private:
  std::optional<double> number_;
  torch::Tensor element_;
};

/// How the losses of the parts of a batch make the loss of the whole.
enum class LossReduction {
  unknown,
  sum,  ///< They add up.
  mean  ///< Their mean, weighted by their divisors, is the whole's.
};

/// That of a loss module of LibTorch's own, as its options say. Unknown for any other type.
LossReduction reduction_of(const torch::nn::Module& loss);

/// The divisor of such a loss with the reduction `mean` for a batch with these labels, which are the last of
/// its operands. Never waits for a device. `class_weights` are those of the loss, where the labels are.
LossDivisor divisor_of(const torch::nn::Module& loss, const Tensors& labels,
                       const torch::Tensor& class_weights);

/// The weights of the classes, if it has any; otherwise undefined.
torch::Tensor class_weights_of(const torch::nn::Module& loss);

namespace detail {

/// A loss of 0 that depends on `outputs`, or if none of them requires a gradient, on `loss`. Its gradients
/// are 0 even if both are NaN.
torch::Tensor zero_loss(const torch::Tensor& loss, const Tensors& outputs);

/// The mean `loss` of a part of a whole as its share of the whole's mean. It is 0 for a part without items,
/// whose mean is NaN, unless the whole has none either.
torch::Tensor share_of_mean(const torch::Tensor& loss, const Tensors& outputs, const LossDivisor& part,
                            const LossDivisor& whole);

}  // namespace detail

}  // namespace etude::inline v0
