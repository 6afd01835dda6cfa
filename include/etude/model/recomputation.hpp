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

/// Runs a model's units without keeping what their backward passes need: these compute it again, which is
/// also called gradient checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost").
/// Only a unit's inputs and copies of its buffers stay in memory, for about a third more time. The second
/// forward pass has the first one's random numbers, buffers and autocast, so the gradients are the same to
/// the bit. Random numbers of generators other than LibTorch's default ones aren't repeated, nor is state
/// outside of buffers.
class Recomputation {
 public:
  /// Throws what `units` throws.
  explicit Recomputation(const Model& model);

  /// The output of a unit. Throws Error if the unit changes an input in place, and in a backward pass that
  /// creates a graph.
  torch::Tensor run(std::size_t unit, const UnitRunner::Forward& forward, const Tensors& inputs);

 private:
  std::vector<std::shared_ptr<torch::nn::Module>> units_;
};

/// Recomputes the units of a model, which must outlive it.
class RecomputedUnits final : public UnitRunner {
 public:
  /// Throws what `run_units` throws.
  explicit RecomputedUnits(const Model& model);
  RecomputedUnits(const RecomputedUnits&) = delete;
  RecomputedUnits& operator=(const RecomputedUnits&) = delete;
  ~RecomputedUnits() override;

  torch::Tensor run(std::size_t unit, const Forward& forward, const Tensors& inputs) override;

 private:
  Recomputation recomputation_;
  UnitsGuard guard_;
};

}  // namespace etude::inline v0
