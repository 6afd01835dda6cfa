#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etude/model/model.hpp"
#include "etude/optim/parameter_groups.hpp"

namespace etude {

/// A direct child of a model, or a module in it.
struct NamedModule {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
};

/// The parameters of a layer group that an `unfreeze` has unfrozen, under their names in the model.
struct UnfrozenGroup {
  std::string name;
  NamedTensors parameters;
};

/// Freezes and unfreezes the layer groups of a model, its direct children, whose parameters then get no
/// gradient. An optimizer leaves frozen parameters alone, weight decay included, and takes them in when they
/// are unfrozen, in the middle of a training too. The methods are those of pytorch-accelerated's class of
/// this name, whose flags for the modules' mode are mixed up. Parameters that the model holds itself, beside
/// its children, are none of a group's and stay as they are; a parameter that two groups share is frozen for
/// both.
class ModelFreezer {
 public:
  struct Options {
    bool freeze_batch_norms = false;  ///< Those of a group are frozen with it; else they go on learning.
  };

  /// From `from_index` to `to_index`, both included and in either order; negative ones count from the end.
  struct Freezing {
    std::int64_t from_index = 0;
    std::int64_t to_index = -2;
    /// What is frozen goes to evaluation mode. (A training begins with all in training mode: to have it so
    /// there, freeze in `TrainBegin`.)
    bool set_modules_as_eval = false;
  };
  struct Unfreezing {
    std::int64_t from_index = -1;
    std::int64_t to_index = 0;
    bool set_modules_as_training = true;
  };

  /// Unfreezes all of the model's parameters. Throws ArgumentError for TorchScript and for a model without
  /// children.
  explicit ModelFreezer(const Model& model, Options options);
  explicit ModelFreezer(const Model& model) : ModelFreezer(model, Options()) {}

  /// The direct children, in the order of their registration.
  std::vector<NamedModule> get_layer_groups() const { return groups_; }
  /// The modules that have no children.
  std::vector<NamedModule> get_layers() const;
  NamedTensors get_trainable_parameters() const;

  /// Both throw ArgumentError for an index that no group has.
  void freeze(Freezing which);
  void freeze() { freeze(Freezing()); }
  /// Returns what was frozen and no longer is, of the groups that had any.
  std::vector<UnfrozenGroup> unfreeze(Unfreezing which);
  std::vector<UnfrozenGroup> unfreeze() { return unfreeze(Unfreezing()); }

 private:
  std::pair<std::size_t, std::size_t> range(std::int64_t from_index, std::int64_t to_index) const;
  std::size_t position(const char* field, std::int64_t index) const;

  std::shared_ptr<torch::nn::Module> model_;
  Options options_;
  std::vector<NamedModule> groups_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/optim/impl/model_freezer.ipp"
#endif
