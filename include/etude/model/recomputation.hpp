#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "etude/data/tensors.hpp"
#include "etude/model/model.hpp"
#include "etude/model/units.hpp"

namespace etude::inline v0 {

/// Gradient checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"): runs a model's
/// units without keeping their activations, which the backward pass computes again. Only a unit's inputs and
/// copies of its buffers stay in memory, at the cost of about a third more time. The second forward pass uses
/// the same random numbers, buffers and autocast as the first, so gradients are bit-identical. Random numbers
/// from generators other than LibTorch's default ones aren't repeated, nor is state outside of buffers.
class Recomputation : public UnitRunner {
 public:
  /// Throws as `units` does.
  explicit Recomputation(const Model& model);

  /// Computes the output of a unit. Throws Error if the unit changes an input in place. A backward pass that
  /// creates a graph throws Error too.
  torch::Tensor run(std::size_t unit, const Forward& forward, const Tensors& inputs) override;

 private:
  std::vector<std::shared_ptr<torch::nn::Module>> units_;
};

/// Recomputes the units of a model, which must outlive it.
class RecomputedUnits final : public Recomputation {
 public:
  /// Throws as `run_units` does.
  explicit RecomputedUnits(const Model& model) : Recomputation(model), guard_(run_units(model, *this)) {}

 private:
  UnitsGuard guard_;
};

}  // namespace etude::inline v0
