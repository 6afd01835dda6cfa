#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etude/data/tensors.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

/// How a target follows its source: target = decay * target + (1 - decay) * source.
struct TargetOptions {
  double decay = 0;        ///< in [0, 1); 0 copies the source
  std::int64_t every = 1;  ///< moves once every this many update steps
};

struct FrozenOptions {
  bool save = false;  ///< true if weight files and checkpoints contain it
};

/// One of several modules, and its role.
struct PartOfModel {
  enum class Role { trained, frozen, target };

  /// A module that is trained.
  template <class M>
    requires(!std::same_as<M, PartOfModel>)
  PartOfModel(M module) : model(std::move(module)) {}
  PartOfModel(Model module, Role of_part) : model(std::move(module)), role(of_part) {}

  Model model;
  Role role = Role::trained;
  bool is_saved = true;
  std::string source = {};            ///< for a target: the name of the module that it follows
  TargetOptions target_options = {};  ///< for a target
};

/// A module that isn't trained, such as a teacher: its parameters get no gradients, it stays in evaluation
/// mode, and it moves to the model's device. Weight files and checkpoints don't contain it unless `save` is
/// set.
PartOfModel frozen(Model module, FrozenOptions options = {});

/// A module that isn't trained and follows the one named `source`: a target network, or a teacher that is an
/// exponential moving average of its student (BYOL, arXiv:2006.07733). It starts as a copy of the source;
/// after an update step, its parameters move towards the source's by `torch.lerp`, and buffers are copied. It
/// stays in evaluation mode. Weight files and checkpoints contain it. `module` must have tensors of the same
/// names and shapes as the source; their values are overwritten.
PartOfModel target_of(std::string source, Model module, TargetOptions options = {});

struct NamedPart {
  std::string name;
  PartOfModel part;
};

/// The module that Modules holds.
class ModulesImpl : public torch::nn::Module {
 public:
  /// Throws ArgumentError for a name that is empty, contains a dot or is given twice, for a TorchScript part
  /// that would have to be saved, and for a target whose source or options are invalid.
  explicit ModulesImpl(std::vector<NamedPart> parts);

  /// Computes the outputs of the first module.
  Tensors forward(const Tensors& inputs) { return parts_.front().part.model.forward(inputs); }

  const std::vector<NamedPart>& parts() const { return parts_; }

  /// True if a part follows another.
  bool has_targets() const { return !followers_.empty(); }
  /// Moves the targets that are due after update step `step`, counted from 1.
  void move_targets(std::int64_t step);

  void train(bool on = true) override;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

 private:
  /// A target's tensors, and the source's tensors that they follow.
  struct Follower {
    TargetOptions options;
    std::vector<torch::Tensor> parameters = {}, ends = {};
    std::vector<std::pair<torch::Tensor, torch::Tensor>> buffers = {};
  };

  void check_target(const NamedPart& target) const;
  void add_follower(const NamedPart& target);
  const Model& source_of(const NamedPart& target) const;

  std::vector<NamedPart> parts_;
  std::vector<Follower> followers_;
};

/// Several modules as one model, without a class that holds them:
///
///     .model = etude::Modules{{"generator", generator}, {"critic", critic}}
///     .model = etude::Modules{{"student", student},
///                             {"teacher", etude::frozen(teacher)},
///                             {"slow", etude::target_of("student", copy, {.decay = 0.99})}}
///
/// A module's tensors are named "generator.WEIGHT" everywhere: in parameters, checkpoints, optimizers and
/// patterns. A `compute_loss` takes the modules that it uses by their types, `(Generator& generator, Critic&
/// critic, const etude::Batch& batch)`; if several have the same type, it takes all of them, in their order.
/// Other code uses `model.as<Critic>("critic")`. The outputs of the first module are the model's outputs, for
/// example in predictions.
class Modules : public torch::nn::ModuleHolder<ModulesImpl> {
 public:
  Modules(std::initializer_list<NamedPart> parts)
      : torch::nn::ModuleHolder<ModulesImpl>(std::make_shared<ModulesImpl>(std::vector(parts))) {}
};

}  // namespace etude::inline v0
