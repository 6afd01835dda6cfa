#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <filesystem>
#include <functional>

#include "etude/trainer_options.hpp"

namespace etude::inline v0::laws::detail {

/// A model with everything that a callback might disturb: random numbers, buffers, and submodules in
/// different modes.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::function<void(bool is_training)> at_forward_);

  torch::Tensor forward(const torch::Tensor& images);

  std::function<void(bool)> at_forward;
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr}, still{nullptr};  ///< `still` is trained in evaluation mode.
  torch::nn::Dropout dropout{nullptr};
};

/// The problem: images [1, 4, 4] of three classes, 10 per process to train on and 5 to evaluate on, in
/// batches of 2 and accumulation groups of 2 batches, so that an epoch's last group is incomplete.
TrainerOptions problem(const std::filesystem::path& folder, bool saves, std::function<void(bool)> at_forward);

/// Images of the same kind without labels.
torch::Tensor unlabelled();

}  // namespace etude::inline v0::laws::detail
