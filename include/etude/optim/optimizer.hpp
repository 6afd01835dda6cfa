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

#include "etude/optim/flat_parameters.hpp"
#include "etude/optim/parameter_groups.hpp"

namespace etude::inline v0 {

/// Parameters of a group and their options. The next step uses `lr`; a scheduler computes it from
/// `initial_lr`.
struct ParamGroup {
  NamedTensors parameters;
  double lr = 0;
  double initial_lr = 0;
  double weight_decay = 0;
};

/// Updates a model's parameters. It lays them flat (see FlatParameters) for as long as it lives. `step`
/// doesn't touch parameters without a gradient since `zero_grad`: no decay, no change of their state. Those
/// that take sparse gradients (SGD, Adagrad, SparseAdam) touch only the rows in them.
class Optimizer {
 public:
  using Closure = std::function<torch::Tensor()>;

  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer();

  /// Makes one update. A closure (clears the gradients, computes the loss, calls backward, returns the loss),
  /// if given, is called first, and its loss is returned. Throws ArgumentError if `needs_closure` and none is
  /// given.
  virtual torch::Tensor step(const Closure& closure = nullptr);

  /// Whether `step` requires the closure and calls it itself, perhaps several times.
  virtual bool needs_closure() const;

  virtual void zero_grad();
  /// Whether any parameter has a gradient since then.
  bool has_gradients() const { return flat_.has_gradients(); }

  /// The L2 norm of all gradients, 0-dim, on the device.
  torch::Tensor grad_norm() { return flat_.grad_norm(); }
  /// Scales the gradients to a norm of at most `max_norm` and returns the norm before, 0-dim, on the device.
  torch::Tensor clip_grad_norm(double max_norm) { return flat_.clip_grad_norm(max_norm); }
  /// The same, for the next step only: if possible, the gradients stay unchanged and the step scales them on
  /// the fly, which saves a pass.
  virtual torch::Tensor clip_grad_norm_in_step(double max_norm);
  /// Keeps the moments in the memory of the CPU, where it also updates the parameters from now on, and
  /// returns true; false, and nothing changes, for an optimizer that can't.
  virtual bool offload_moments();

  /// Whether it updates bfloat16 parameters in float32 and rounds them, so that small updates count.
  virtual bool rounds_bfloat16() const;

  /// Keeps learning rates and numbers of steps on the device from now on, so that a graph can capture and
  /// replay `step`, and returns true; false, and nothing changes, for an optimizer that can't.
  virtual bool make_capturable();
  /// Writes those of the next step, for the two below.
  virtual void prepare_captured_step();
  /// The host's part of a step that is replayed: counts it.
  virtual void count_replayed_step();

  /// Clamps every gradient element to [-limit, limit].
  void clip_grad_value(double limit) { flat_.clip_grad_value(limit); }

  virtual std::vector<ParamGroup>& param_groups();

  FlatParameters& flat_parameters() { return flat_; }

  /// Sets the learning rates of a group, wherever they are stored.
  virtual void set_learning_rates(std::size_t group, double lr, double initial_lr);

  /// The name of its type, without namespaces: "AdamW".
  virtual std::string type() const;

  /// The options behind its steps, besides `state` and the parameters: {"type": ..., "given": [...],
  /// "changed": [...]}, with one object per group in each list. "given" has the options at construction (lr,
  /// initial_lr, weight_decay, betas, ...), "changed" those that have changed since.
  nlohmann::ordered_json options_state();

  /// Restores the options of a saved run from its `options_state`: an option that this optimizer was given
  /// the same value for as the saved run takes the value it had at the end of that run. One given another
  /// value keeps it (as does one that can't be changed), and `differences` gets a line: `param_groups[0].lr:
  /// 0.001 -> 0.002`. From an optimizer of another type, only learning rates and weight decay are used. Call
  /// it before `load_state` and before the scheduler's. Returns whether some group was given a different
  /// learning rate. Throws CheckpointError for a different number of groups and for values out of range;
  /// nothing is changed then.
  bool load_options(const nlohmann::ordered_json& saved, std::vector<std::string>& differences);

  /// The state of each updated parameter: `<parameter>.step` (a 0-dim int64) and moments such as
  /// `<parameter>.exp_avg`, in the parameter's shape. The tensors share the optimizer's memory; clone those
  /// that must outlive the next step.
  virtual NamedTensors state();

  /// The memory of the state in bytes, once there is one. If it grows from step to step, the most.
  virtual std::int64_t state_bytes();

  /// Replaces the state with a result of `state`, perhaps from another layout or device. Parameters missing
  /// from it start from scratch; entries for parameters that are frozen now are dropped. Throws
  /// CheckpointError if a name, a shape or a value doesn't fit; nothing is changed then.
  virtual void load_state(const NamedTensors& state);

 protected:
  /// The saved state of one parameter. Without steps, it starts from scratch.
  struct SlotState {
    std::int64_t steps = 0;
    std::vector<torch::Tensor> moments;  ///< in the order of `moment_sizes`
  };
  struct MomentSizes {
    std::string name;
    std::vector<std::int64_t> sizes;
    at::ScalarType type = at::kFloat;  ///< stands for any floating-point type
  };
  using NamedSizes = std::vector<MomentSizes>;

  /// Throws ArgumentError if there is nothing to train.
  Optimizer(const std::vector<ParameterGroup>& groups, double lr, double weight_decay);

  /// Updates every parameter that has a gradient. Calls `begin_step` first.
  virtual void update() = 0;

  /// `begin_step` of the flat parameters. Throws ArgumentError for a sparse gradient with a `sparse_fault`.
  const std::vector<FlatRange>& begin_step();

  /// Why this optimizer can't use the sparse gradient of a parameter of this group, as the end of a sentence;
  /// empty if it can. By default it can't.
  virtual std::string sparse_fault(const ParamGroup& group) const;

  /// The state of one parameter besides its steps: views that `load_state` writes to. Call after
  /// `flat_.mend()`.
  virtual NamedTensors moments(std::size_t slot) = 0;

  /// The names, sizes and types of `moments`.
  virtual NamedSizes moment_sizes(std::size_t slot);

  /// Resets the state of one parameter to that before its first step.
  virtual void reset_moments(std::size_t slot) = 0;

  /// Whether a state without this moment is valid, as is one with it where it isn't kept.
  virtual bool may_lack(std::string_view moment) const;

  /// Sets the state of one parameter, in the sizes of `moment_sizes`; undefined for a moment that was
  /// lacking.
  virtual void set_moments(std::size_t slot, const std::vector<torch::Tensor>& values);

  /// Its options that never change, besides those of ParamGroup: a JSON object.
  virtual nlohmann::ordered_json own_options() const;

  /// All current options of a group.
  virtual nlohmann::ordered_json group_options(std::size_t group);

  /// Throws CheckpointError unless each option of `merged` that differs from `given` can be set.
  virtual void check_group_options(std::size_t group, const nlohmann::ordered_json& merged,
                                   const nlohmann::ordered_json& given);

  /// Sets options that were already checked.
  virtual void set_group_options(std::size_t group, const nlohmann::ordered_json& merged);

  /// The validated state of each slot. Throws CheckpointError as `load_state` does.
  std::vector<SlotState> match(const NamedTensors& state);

  std::vector<ParamGroup> groups_;
  FlatParameters flat_;
  std::vector<nlohmann::ordered_json> given_;  ///< the options of each group at construction

 private:
  static std::vector<ParamGroup> complete(const std::vector<ParameterGroup>& groups, double lr,
                                          double weight_decay);
  static nlohmann::ordered_json numbers_of(const ParamGroup& group);
  static std::vector<NamedTensors> tensors_of(const std::vector<ParamGroup>& groups);
  nlohmann::ordered_json given_options(std::size_t group);

  void check_leftovers(const NamedTensors& state, const std::vector<SlotState>& loaded,
                       const std::unordered_map<std::string_view, const torch::Tensor*>& leftovers) const;
};

}  // namespace etude::inline v0
