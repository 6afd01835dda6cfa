#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <optional>

#include "etude/data/tensors.hpp"

namespace etude::inline v0 {

/// The number by which a mean loss divides the sum over its items: the number of elements, examples or
/// labels, or the sum of the labels' class weights. The mean over a batch is the mean over its parts,
/// weighted by their divisors.
class LossDivisor {
 public:
  explicit LossDivisor(double number) : number_(number) {}
  /// The number as a one-element tensor. On a device it stays unread, so that nothing waits for it.
  explicit LossDivisor(const torch::Tensor& element);

  /// The number; unset if it is on a device.
  std::optional<double> number() const { return number_; }
  /// The number. Waits for the device, if it is on one.
  double read() const;
  /// The number as a 0-dim float64 tensor.
  torch::Tensor tensor() const;

  /// Adds the divisor of another part.
  LossDivisor& operator+=(const LossDivisor& other);

 private:
  std::optional<double> number_;
  torch::Tensor element_;
};

/// How the losses of a batch's parts combine into the batch's loss.
enum class LossReduction {
  unknown,
  sum,  ///< They add up.
  mean  ///< Their mean, weighted by their divisors, is the batch's loss.
};

/// The reduction in the options of a LibTorch loss module. Unknown for any other type.
LossReduction reduction_of(const torch::nn::Module& loss);

/// The divisor of a LibTorch loss with reduction `mean`, for a batch with these labels, which are the loss's
/// last operands. Never waits for a device. `class_weights` are the loss's class weights, on the labels'
/// device.
LossDivisor divisor_of(const torch::nn::Module& loss, const Tensors& labels,
                       const torch::Tensor& class_weights);

/// The class weights of a loss module; undefined if it has none.
torch::Tensor class_weights_of(const torch::nn::Module& loss);

namespace detail {

/// A loss of 0 that depends on `outputs` or, if none of them requires a gradient, on `loss`. Its gradients
/// are 0 even if all of these are NaN.
torch::Tensor zero_loss(const torch::Tensor& loss, const Tensors& outputs);

/// Returns the contribution of one part of a batch to the batch's mean: the part's mean `loss` times its
/// divisor over the batch's divisor. A part without items has the mean NaN and contributes 0, unless the
/// whole batch has no items.
torch::Tensor share_of_mean(const torch::Tensor& loss, const Tensors& outputs, const LossDivisor& part,
                            const LossDivisor& whole);

}  // namespace detail

}  // namespace etude::inline v0
