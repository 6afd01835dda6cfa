#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "etude/optim/flat_parameters.hpp"
#include "etude/optim/parameter_groups.hpp"
#include "etude/optimizer_names.hpp"

namespace etude::inline v0 {

/// The parameters of a group and their options. The next step uses `lr`, which a scheduler computes from
/// `initial_lr`.
struct ParamGroup {
  NamedTensors parameters;
  double lr = 0;
  double initial_lr = 0;
  double weight_decay = 0;
  /// Numbers of at least 0, by name, that the optimizer keeps from step to step. They are saved like options.
  std::map<std::string, double> kept = {};
  std::optional<double> momentum = {};  ///< if set, used instead of the option `momentum` or `beta1`
};

namespace detail {
/// The suffix for the training's weights in the state of an optimizer that evaluates at other weights.
inline constexpr std::string_view training_weights_suffix = ".y";
}  // namespace detail

/// The weights that the parameters hold, for an optimizer that evaluates and saves others than it trains at.
enum class WeightsInUse {
  training,  ///< the weights that the next step starts from
  averaged,  ///< the weights to evaluate and save, while a copy of the training's is kept
  result,    ///< the weights to evaluate and save, once a training has ended: no copy is kept
};

/// Updates a model's parameters, which it keeps in flat buffers (see FlatParameters) for as long as it lives.
/// `step` doesn't touch parameters that have received no gradient since `zero_grad`: it changes neither their
/// values, not even by weight decay, nor their state. Optimizers that take sparse gradients (SGD, Adagrad,
/// SparseAdam) touch only the rows in the gradient.
class Optimizer {
 public:
  using Closure = std::function<torch::Tensor()>;

  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer();

  /// Makes one update. If there is a closure, calls it first and returns its loss; a closure clears the
  /// gradients, computes the loss, calls backward and returns the loss. Throws ArgumentError if
  /// `needs_closure` and none is given.
  virtual torch::Tensor step(const Closure& closure = nullptr);

  virtual OptimizerTraits traits() const;
  /// True if `step` requires the closure, which it may call several times.
  bool needs_closure() const { return traits().needs_closure; }

  virtual void zero_grad();
  /// True if any parameter has received a gradient since `zero_grad`.
  bool has_gradients() const { return flat_.has_gradients(); }

  /// The L2 norm of all gradients, as a 0-dim tensor on the device.
  torch::Tensor grad_norm() { return flat_.grad_norm(); }
  /// Scales the gradients to a norm of at most `max_norm`. Returns the norm before scaling, as a 0-dim tensor
  /// on the device.
  torch::Tensor clip_grad_norm(double max_norm) { return flat_.clip_grad_norm(max_norm); }
  /// The same, but only for the next step: if possible, the gradients stay unchanged and the step scales them
  /// on the fly, which saves a pass.
  torch::Tensor clip_grad_norm_in_step(double max_norm);
  /// From now on, keeps the moments in CPU memory and computes the updates there. Returns false, and changes
  /// nothing, if this optimizer can't do that.
  bool offload_moments() { return set_mode(StepMode::offloaded); }

  /// From now on, keeps learning rates and step counts on the device, so that a graph can capture and replay
  /// `step`. Returns false, and changes nothing, if this optimizer can't do that.
  bool make_capturable();
  /// Writes the numbers of the next step to the device, before `step` is captured or replayed.
  void prepare_captured_step();
  /// Counts a step that was replayed, since the graph doesn't count it.
  void count_replayed_step();

  /// Puts these weights into the parameters. After `averaged`, the training's weights return bit for bit;
  /// after `result`, they are computed from the parameters, which may have been changed. Returns true if the
  /// parameters have changed. An optimizer that evaluates at the weights that it trains at always returns
  /// false. So does a switch from `result` to `averaged`, which leaves `result` in use. If the state is
  /// divided among processes, all of them must call this.
  virtual bool use_weights(WeightsInUse which);

  /// Clamps every gradient element to [-limit, limit].
  void clip_grad_value(double limit) { flat_.clip_grad_value(limit); }

  virtual std::vector<ParamGroup>& param_groups();

  FlatParameters& flat_parameters() { return flat_; }

  /// Sets the learning rates of a group, including copies elsewhere.
  virtual void set_learning_rates(std::size_t group, double lr, double initial_lr);

  /// The name of the optimizer's type, without namespaces: "AdamW".
  virtual std::string type() const;

  /// The options that steps depend on, besides `state` and the parameters: {"type": ..., "given": [...],
  /// "changed": [...]}, with one object per group in each list. "given" has the options at construction (lr,
  /// initial_lr, weight_decay, betas, ...), "changed" has the options that have changed since.
  nlohmann::ordered_json options_state();

  /// Restores the options of a saved run from its `options_state`. An option that was given the same value in
  /// both runs takes the value that it had at the end of the saved run. An option that was given a different
  /// value keeps it, as does one that can't be changed, and `differences` gets a line: `param_groups[0].lr:
  /// 0.001 -> 0.002`. From an optimizer of another type, only learning rates and weight decay are used. Call
  /// it before `load_state`, and before the scheduler's `load_state`. Returns true if a group was given a
  /// different learning rate. Throws CheckpointError for a different number of groups and for values out of
  /// range; nothing is changed in that case.
  bool load_options(const nlohmann::ordered_json& saved, std::vector<std::string>& differences);

  /// The state of each parameter that has been updated: `<parameter>.step` (a 0-dim int64) and moments such
  /// as `<parameter>.exp_avg`, in the parameter's shape. The tensors share the optimizer's memory; clone the
  /// tensors that must outlive the next step. An optimizer that evaluates at other weights than it trains at
  /// adds the training's weights as `<parameter>.y`.
  virtual NamedTensors state();

  /// The memory that the state takes, in bytes, once it exists; the maximum, if it grows from step to step.
  virtual std::int64_t state_bytes();

  /// Replaces the state with a result of `state`, perhaps from another layout or device. Parameters missing
  /// from it start from scratch; entries for parameters that are frozen now are dropped. Throws
  /// CheckpointError if a name, a shape or a value doesn't fit; nothing is changed in that case. If the state
  /// has the training's weights, they are written to the parameters.
  virtual void load_state(const NamedTensors& state);

 protected:
  /// The saved state of one parameter. Without steps, the parameter starts from scratch.
  struct SlotState {
    std::int64_t steps = 0;
    std::vector<torch::Tensor> moments;  ///< in the order of `moment_sizes`
  };
  enum class SavedMoment {
    required,
    optional,
    ignored  ///< a state may have it, but it isn't kept here
  };
  struct MomentSizes {
    std::string name;
    std::vector<std::int64_t> sizes;
    at::ScalarType type = at::kFloat;  ///< stands for any floating-point type
    SavedMoment saved = SavedMoment::required;
  };
  using NamedSizes = std::vector<MomentSizes>;

  /// Throws ArgumentError if there is nothing to train.
  Optimizer(const std::vector<ParameterGroup>& groups, double lr, double weight_decay);

  /// Updates every parameter that has a gradient. Calls `begin_step` first.
  virtual void update() = 0;

  enum class StepMode {
    plain,
    offloaded,  ///< see `offload_moments`
    captured,   ///< see `make_capturable`
  };
  /// Leaves the plain mode. Returns false, and changes nothing, if this optimizer can't do that.
  virtual bool set_mode(StepMode mode);
  /// Writes to the device the numbers of the update that is `ahead` steps after the last one.
  virtual void write_numbers(std::int64_t ahead);

  /// True if `update` multiplies the gradients by `gradient_scale()` in Etude's kernels, which take them
  /// wherever autograd left them.
  virtual bool uses_kernels() const;

  double gradient_scale() const { return gradient_scale_; }
  /// The gradients times `gradient_scale()`.
  torch::Tensor scaled(const torch::Tensor& gradients) const;

  /// `begin_step` of the flat parameters. Throws ArgumentError for a sparse gradient with a `sparse_fault`.
  const std::vector<FlatRange>& begin_step();

  /// The end of a message that says why this optimizer can't use a sparse gradient of a parameter in this
  /// group; empty if it can. By default it can't.
  virtual std::string sparse_fault(const ParamGroup& group) const;

  /// The state of one parameter besides its steps: views that `load_state` writes to. Call `flat_.mend()`
  /// first.
  virtual NamedTensors moments(std::size_t slot) = 0;

  /// The names, sizes and types of `moments`, and of moments that are ignored.
  virtual NamedSizes moment_sizes(std::size_t slot);

  /// Sets the state of one parameter, whose number of steps was already set. `values` have the sizes of
  /// `moment_sizes`, without the ignored ones; an optional moment that the saved state lacked is undefined.
  /// If the number of steps is 0, `values` is empty, and the state is reset to what it is before the first
  /// step.
  virtual void set_moments(std::size_t slot, const std::vector<torch::Tensor>& values) = 0;

  /// All current options of a group, as a JSON object.
  virtual nlohmann::ordered_json group_options(std::size_t group) = 0;

  /// These options, with the group's current learning rates and weight decay.
  nlohmann::ordered_json with_numbers_of(std::size_t group, const nlohmann::ordered_json& options) const;

  /// Returns a function that sets the options of a group. Throws CheckpointError unless each option of
  /// `merged` that differs from `given` can be set.
  virtual std::function<void()> setter_of_options(std::size_t group, const nlohmann::ordered_json& merged,
                                                  const nlohmann::ordered_json& given);

  /// Validates a state and returns it by slot. Throws CheckpointError as `load_state` does.
  std::vector<SlotState> match(const NamedTensors& state);

  std::vector<ParamGroup> groups_;
  FlatParameters flat_;
  std::vector<nlohmann::ordered_json> given_;  ///< the options of each group at construction
  bool is_prepared_ = false;  ///< true if `prepare_captured_step` has written the numbers of the next step

 private:
  static std::vector<ParamGroup> complete(const std::vector<ParameterGroup>& groups, double lr,
                                          double weight_decay);
  static nlohmann::ordered_json numbers_of(const ParamGroup& group);
  static std::vector<NamedTensors> tensors_of(const std::vector<ParamGroup>& groups);
  nlohmann::ordered_json given_options(std::size_t group);

  void check_leftovers(const NamedTensors& state, const std::vector<SlotState>& loaded,
                       const std::unordered_map<std::string_view, const torch::Tensor*>& leftovers) const;

  double gradient_scale_ = 1;
};

}  // namespace etude::inline v0
