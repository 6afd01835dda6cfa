#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/optim/flat_parameters.hpp"
#include "etude/optim/parameter_groups.hpp"

namespace etude {

/// The parameters of a group and how they are trained. `lr` is what the next step uses; a scheduler computes
/// it from `initial_lr`.
struct ParamGroup {
  NamedTensors parameters;
  double lr = 0;
  double initial_lr = 0;
  double weight_decay = 0;
};

/// What updates the parameters of a model, which it lays flat (see FlatParameters) for as long as it lives.
/// A parameter that got no gradient since `zero_grad` isn't touched by `step`: no decay, no change of its
/// state.
class Optimizer {
 public:
  using Closure = std::function<torch::Tensor()>;

  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  ETUDE_INLINE virtual ~Optimizer();

  /// One update. A closure (clears the gradients, computes the loss, calls backward, returns the loss) is
  /// called first where it is given, and its loss returned.
  /// Throws ArgumentError when `needs_closure` and none is given.
  ETUDE_INLINE virtual torch::Tensor step(const Closure& closure = nullptr);

  /// Whether `step` calls the closure itself, perhaps several times, and can't do without.
  ETUDE_INLINE virtual bool needs_closure() const;

  ETUDE_INLINE virtual void zero_grad();

  /// The L2 norm of all gradients, 0-dim, on the device.
  torch::Tensor grad_norm() { return flat_.grad_norm(); }
  /// Scales the gradients to a norm of at most `max_norm` and returns the norm before, 0-dim, on the device.
  torch::Tensor clip_grad_norm(double max_norm) { return flat_.clip_grad_norm(max_norm); }
  /// The same, for the next step only: where that can be done, the gradients stay as they are and the step
  /// scales them on its way, which saves a pass.
  ETUDE_INLINE virtual torch::Tensor clip_grad_norm_in_step(double max_norm);
  /// Limits every gradient element to [-limit, limit].
  void clip_grad_value(double limit) { flat_.clip_grad_value(limit); }

  ETUDE_INLINE virtual std::vector<ParamGroup>& param_groups();

  FlatParameters& flat_parameters() { return flat_; }

  /// Sets the learning rates of a group at once, wherever they are kept.
  ETUDE_INLINE virtual void set_learning_rates(std::size_t group, double lr, double initial_lr);

  /// The name of its kind, without namespaces: "AdamW".
  ETUDE_INLINE virtual std::string type() const;

  /// What its steps depend on beside `state` and the parameters: {"type": ..., "given": [...], "changed":
  /// [...]}, one object a group in each list. "given" has the options as they were when the optimizer was
  /// made (lr, initial_lr, weight_decay, betas, ...), "changed" those that are others now.
  nlohmann::ordered_json options_state();

  /// Takes over what a run had made of its options, from its `options_state`: an option that this optimizer
  /// was given as the run's was becomes what the run had made of it. One that was given otherwise stays (so
  /// does one that can't be changed), and `differences` gets a line: `param_groups[0].lr: 0.001 -> 0.002`. Of
  /// an optimizer of another type, learning rates and weight decay count only. Call it before `load_state`
  /// and before the scheduler's. Returns whether some group was given another learning rate than then. Throws
  /// CheckpointError for another number of groups and for values out of range; nothing is changed then.
  bool load_options(const nlohmann::ordered_json& saved, std::vector<std::string>& differences);

  /// The state of each parameter that was updated: `<parameter>.step` (a 0-dim int64) and moments such as
  /// `<parameter>.exp_avg`, in the parameter's shape. The tensors share the optimizer's memory; clone what
  /// has to outlive the next step.
  ETUDE_INLINE virtual NamedTensors state();

  /// Replaces the state by one that `state` gave, perhaps of another layout or on another device. Parameters
  /// that are not in it start anew; what it says of parameters that are frozen now is dropped. Throws
  /// CheckpointError when a name, a shape or a value doesn't fit; nothing is changed then.
  ETUDE_INLINE virtual void load_state(const NamedTensors& state);

 protected:
  /// What a state says of one parameter. Without steps, it starts anew.
  struct SlotState {
    std::int64_t steps = 0;
    std::vector<torch::Tensor> moments;  ///< as `moment_sizes` names them
  };
  using NamedSizes = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

  /// Throws ArgumentError when there is nothing to train.
  Optimizer(const std::vector<ParameterGroup>& groups, double lr, double weight_decay);

  /// Updates every parameter that has a gradient.
  virtual void update() = 0;

  /// What is kept of one parameter beside its steps: views that `load_state` writes to. After `flat_.mend()`.
  virtual NamedTensors moments(std::size_t slot) = 0;

  /// The names and sizes of `moments`.
  ETUDE_INLINE virtual NamedSizes moment_sizes(std::size_t slot);

  /// Makes what is kept of one parameter as it was before its first step.
  virtual void reset_moments(std::size_t slot) = 0;

  /// Its options beside those of ParamGroup, which never change: a JSON object.
  ETUDE_INLINE virtual nlohmann::ordered_json own_options() const;

  /// All options of a group as they are now.
  ETUDE_INLINE virtual nlohmann::ordered_json group_options(std::size_t group);

  /// Throws CheckpointError unless each option of `merged` that isn't as it is in `given` could be set.
  ETUDE_INLINE virtual void check_group_options(std::size_t group, const nlohmann::ordered_json& merged,
                                                const nlohmann::ordered_json& given);

  /// Sets options that were checked.
  ETUDE_INLINE virtual void set_group_options(std::size_t group, const nlohmann::ordered_json& merged);

  /// The state of each slot, checked. Throws CheckpointError as `load_state` does.
  std::vector<SlotState> match(const NamedTensors& state);

  std::vector<ParamGroup> groups_;
  FlatParameters flat_;
  std::vector<nlohmann::ordered_json> given_;  ///< the options that each group was made with

 private:
  static std::vector<ParamGroup> complete(const std::vector<ParameterGroup>& groups, double lr,
                                          double weight_decay);
  static nlohmann::ordered_json numbers_of(const ParamGroup& group);
  static std::vector<NamedTensors> tensors_of(const std::vector<ParamGroup>& groups);
  nlohmann::ordered_json given_options(std::size_t group);

  void check_leftovers(const NamedTensors& state, const std::vector<SlotState>& loaded,
                       const std::unordered_map<std::string_view, const torch::Tensor*>& leftovers) const;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/optim/impl/optimizer.ipp"
#endif
