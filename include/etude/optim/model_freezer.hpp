#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "etude/model/model.hpp"
#include "etude/model/units.hpp"
#include "etude/optim/parameter_groups.hpp"

namespace etude::inline v0 {

/// The parameters of a layer group unfrozen by `unfreeze`, with their names in the model.
struct UnfrozenGroup {
  std::string name;
  NamedTensors parameters;
};

/// Freezes and unfreezes a model's layer groups (its direct children, or modules given by name). Frozen
/// parameters get no gradient. Optimizers don't change them, not even by weight decay, and pick them up when
/// they are unfrozen, even during a training. The methods match pytorch-accelerated's class of the same name,
/// in which the flags for the modules' mode are swapped. Parameters held directly by the model belong to no
/// group and stay unchanged; a parameter shared by two groups is frozen in both.
class ModelFreezer {
 public:
  struct Options {
    bool freeze_batch_norms = false;  ///< Also freezes a group's batch norms; otherwise they keep learning.
    /// Names of modules, or patterns as in ParameterRule, instead of the direct children: "encoder.layers.*"
    /// makes a group of each layer. Modules inside such a module don't form further groups.
    std::vector<std::string> layer_groups = {};
    bool keep_frozen = false;  ///< Parameters that are already frozen stay frozen.
  };

  /// The groups from `from_index` to `to_index`, inclusive, in either order; negative indices count from the
  /// end.
  struct Freezing {
    std::int64_t from_index = 0;
    std::int64_t to_index = -2;
    /// Also puts frozen modules in evaluation mode. (A training starts by putting all modules in training
    /// mode, so freeze in `TrainBegin` for this to last.)
    bool set_modules_as_eval = false;
  };
  struct Unfreezing {
    std::int64_t from_index = -1;
    std::int64_t to_index = 0;
    bool set_modules_as_training = true;
  };

  /// Unfreezes all parameters of the model, except with `keep_frozen`. Throws ArgumentError for TorchScript,
  /// for a model without children, and for names in `layer_groups` that match no module.
  explicit ModelFreezer(const Model& model, Options options);
  explicit ModelFreezer(const Model& model) : ModelFreezer(model, Options()) {}

  /// The direct children in registration order, or the modules named by `layer_groups`, in that order.
  const std::vector<NamedModule>& get_layer_groups() const { return groups_; }
  /// The modules without children.
  std::vector<NamedModule> get_layers() const;
  NamedTensors get_trainable_parameters() const;

  /// Both throw ArgumentError for an index out of range.
  void freeze(const Freezing& which);
  void freeze() { freeze(Freezing()); }
  /// Returns the parameters that were frozen before, by group, for each group that had any.
  std::vector<UnfrozenGroup> unfreeze(const Unfreezing& which);
  std::vector<UnfrozenGroup> unfreeze() { return unfreeze(Unfreezing()); }

 private:
  std::pair<std::size_t, std::size_t> range(std::int64_t from_index, std::int64_t to_index) const;
  std::size_t position(const char* field, std::int64_t index) const;
  void add_groups(const std::string& pattern);

  std::shared_ptr<torch::nn::Module> model_;
  Options options_;
  std::vector<NamedModule> groups_;
  std::unordered_set<const void*> kept_;  // parameters that stay frozen
};

}  // namespace etude::inline v0
