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

/// Maps the names of parameters in units to the index of their unit. Throws ArgumentError as `units` does,
/// and for a parameter that a unit shares with another unit or with the rest of the model.
std::unordered_map<std::string, std::size_t> unit_of_parameters(const Model& model);

/// Gathers the parameters of a model's units, of which each process keeps only its share, before a unit's
/// forward and backward, and frees them afterwards. All processes must call the units in the same order. The
/// communicator and the parameters must outlive this object. With `recomputes`, the units' backward passes
/// compute their activations again.
class ShardedUnits final : public UnitRunner {
 public:
  ShardedUnits(const Model& model, std::vector<FlatParameters*> parameters, bool recomputes = false);
  ~ShardedUnits() override;

  torch::Tensor run(std::size_t unit, const Forward& forward, const Tensors& inputs) override;

  /// Gathers all parameters and leaves them whole. All processes must call it before destruction.
  void gather();

  /// Keeps all parameters whole while it lives. All processes must create one. Does nothing for a null
  /// pointer.
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
  /// Frees units at the end of a backward pass that didn't compute all their gradients.
  void release_missing();
  void make_hooks();

  std::vector<FlatParameters*> parameters_;
  std::vector<std::shared_ptr<const FlatLayout>> layouts_;
  std::vector<libtorch::GradientHook> hooks_;
  std::unordered_map<std::size_t, std::size_t> trainable_;  // number of parameters, by unit
  std::unordered_map<std::size_t, std::size_t> missing_;    // number of gradients yet to come, by unit
  std::int64_t whole_ = 0;                                  // number of living `Whole`s
  std::optional<Recomputation> recomputation_;
  UnitsGuard guard_;
};

}  // namespace etude::inline v0
