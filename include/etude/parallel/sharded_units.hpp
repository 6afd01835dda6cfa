#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "etude/libtorch/gradient_hook.hpp"
#include "etude/model/model.hpp"
#include "etude/model/recomputation.hpp"
#include "etude/model/units.hpp"
#include "etude/optim/flat_layout.hpp"
#include "etude/optim/flat_parameters.hpp"

namespace etude::inline v0 {

/// The unit of each parameter that belongs to one, by the parameter's name. Throws ArgumentError as `units`
/// does, and for a parameter that two units share, or one with the rest of the model.
std::unordered_map<std::string, std::size_t> unit_of_parameters(const Model& model);

/// Brings the parameters of a model's units where they are used, if each process keeps only its share of
/// them: they are gathered before the unit's forward and backward, and freed afterwards. All processes must
/// call the units in the same order. The communicator and the parameters must outlive it. With `recomputes`,
/// the units' backward passes compute their activations again.
class ShardedUnits final : public UnitRunner {
 public:
  ShardedUnits(const Model& model, std::vector<FlatParameters*> parameters, bool recomputes = false);
  ShardedUnits(const ShardedUnits&) = delete;
  ShardedUnits& operator=(const ShardedUnits&) = delete;
  ~ShardedUnits() override;

  torch::Tensor run(std::size_t unit, const Forward& forward, const Tensors& inputs) override;

  /// Leaves all parameters whole in this process, for when this is destroyed. All processes must call it.
  void gather();

  /// Makes all parameters whole while it lives; all processes must do so. Does nothing for a null pointer.
  class Whole {
   public:
    explicit Whole(ShardedUnits* units);
    Whole(const Whole&) = delete;
    Whole& operator=(const Whole&) = delete;
    ~Whole();

   private:
    ShardedUnits* units_;
  };

 private:
  bool hold(std::size_t unit);
  void release(std::size_t unit);
  void arrived(std::size_t unit);
  /// At the end of a backward pass that didn't give all gradients of these units.
  void release_missing();
  void make_hooks();

  std::vector<FlatParameters*> parameters_;
  std::vector<std::shared_ptr<const FlatLayout>> layouts_;
  std::vector<libtorch::GradientHook> hooks_;
  std::unordered_map<std::size_t, std::size_t> trainable_;  // parameters, by unit
  std::unordered_map<std::size_t, std::size_t> missing_;    // gradients that a backward pass has yet to give
  std::int64_t whole_ = 0;                                  // how many want all parameters whole
  std::optional<Recomputation> recomputation_;
  UnitsGuard guard_;
};

}  // namespace etude::inline v0
