#pragma once

#include <torch/types.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/libtorch/tensor_copies.hpp"
#include "etude/optim/bfloat16.hpp"
#include "etude/optim/host_stage.hpp"
#include "etude/optim/optimizer.hpp"

namespace etude::inline v0 {

/// The base of element-wise optimizers: their state is flat like the parameters, so an update is a few
/// operations on long vectors. To write such an optimizer, write a rule for RuleOptimizer. A one-pass kernel
/// gets the gradients wherever autograd left them. An optimizer that leaves elements without a gradient
/// unchanged overrides `sparse_fault`: `update_range` then gets the rows of sparse gradients.
class FlatOptimizer : public Optimizer {
 public:
  OptimizerTraits traits() const override;

  bool use_weights(WeightsInUse which) override;
  void load_state(const NamedTensors& state) override;

  /// Keeps only a share of the moments. `step` updates that share and takes the other parameters' new values
  /// from their owners. All processes must call the functions of this optimizer in the same order.
  void keep_shard(const FlatShard& shard);

  /// Returns the `state` of all shards together, on the CPU, if it is `wanted` in this process; otherwise
  /// nothing. All processes must call it. (`state` itself throws Error if there are shards.)
  NamedTensors gather_state(bool wanted);

 protected:
  /// A value kept for every element, and its initial value.
  struct Moment {
    std::string name;
    double initial = 0;
  };

  /// Elements that are updated together, in tensors of one shape: a single parameter, or flat views of
  /// several adjacent parameters or parts of them.
  struct Range {
    torch::Tensor values;
    torch::Tensor gradients;
    std::vector<torch::Tensor> moments;  ///< in the order in which they were named
    torch::Tensor compensation = {};     ///< int16, for bfloat16 values with `Rounding::kahan`
    std::uint64_t stream = 0;            ///< selects the random bits; bfloat16 values belong to one parameter
    std::int64_t first = 0;              ///< the index of the first element in that parameter
    torch::Tensor numbers = {};          ///< the `numbers` on the device, as 1-D float64, if captured
  };

  /// How to round bfloat16 parameters, and the seed for stochastic rounding.
  struct RoundingOptions {
    Rounding rounding = Rounding::kahan;
    std::int64_t seed = 0;
  };

  /// Kernels that compute updates faster than LibTorch's operators.
  struct Kernels {
    /// True if, on the CPU, `update_range` makes a single pass over memory; otherwise it gets pieces small
    /// enough to stay in cache between passes. Either way it multiplies the gradients by `gradient_scale()`.
    bool has_one_pass = false;
    /// True if LibTorch's kernel for such a vector is faster than `update_range`; null if there is none.
    bool (*has_libtorch)(const torch::Tensor& values) = nullptr;
    /// True if LibTorch's kernel for such a vector takes the learning rate from `Lists::rate`.
    bool (*has_capturable)(const torch::Tensor& values) = nullptr;
  };

  /// With `rounding`, bfloat16 parameters are updated in float32: either `update_range` passes
  /// `rounding_of(...)` to its one-pass kernel, or it gets float32 copies. Without, it gets the parameters as
  /// they are.
  FlatOptimizer(const std::vector<ParameterGroup>& groups, double lr, double weight_decay,
                std::vector<Moment> moments, const Kernels& kernels, std::optional<RoundingOptions> rounding);

  /// Weights to evaluate and save that differ from the training's: the parameters plus `factor` times a
  /// moment.
  struct Average {
    std::size_t moment = 0;  ///< its index
    double factor = 0;
  };
  /// Unset if the training's weights are evaluated and saved.
  virtual std::optional<Average> average() const;

  /// Ranges in the form that LibTorch's kernels take.
  struct Lists {
    std::vector<torch::Tensor> values, gradients, steps;
    std::vector<std::vector<torch::Tensor>> moments;  ///< in the order in which they were named
    torch::Tensor rate;  ///< the learning rate, 0-dim float32 on the device; undefined if the group's is used
  };

  /// Updates these elements. `steps` is the number of their updates, including this one. The gradients must
  /// not be changed.
  virtual void update_range(const Range& range, const ParamGroup& group, std::int64_t steps) = 0;

  /// The numbers that `update_range` uses for such an update, for a captured step; empty if the update can't
  /// be captured.
  virtual std::vector<double> numbers(const ParamGroup& group, std::int64_t steps);

  /// Called before a step of these ranges.
  virtual void begin_groups(const std::vector<FlatRange>& ranges);

  /// Calls LibTorch's kernel. It may change the gradients.
  virtual void update_by_libtorch(const Lists& lists, const ParamGroup& group, std::int64_t steps);

  bool in_one_pass() const { return kernels_.has_one_pass; }

  detail::Bfloat16Rounding rounding_of(const Range& range, std::int64_t steps) const;

  void update() override;

  bool set_mode(StepMode mode) override;

  void write_numbers(std::int64_t ahead) override;

  bool uses_kernels() const override;

  NamedTensors moments(std::size_t slot) override;

  NamedSizes moment_sizes(std::size_t slot) override;

  void set_moments(std::size_t slot, const std::vector<torch::Tensor>& values) override;

 private:
  /// A range, and the slot if it is a single parameter.
  struct Piece {
    Range range;
    std::size_t slot = 0;
  };

  /// Clears the lists but keeps their memory.
  void clear_lists();

  void enlist(const Range& range, std::int64_t steps);

  void update_pieces(std::size_t range, const ParamGroup& group, std::int64_t steps);
  void update_on_host(const FlatRange& range, std::vector<Piece>& pieces);
  /// Updates a parameter with a sparse gradient.
  void update_rows(const FlatRange& range);

  /// A range's numbers that change from step to step, as tensors that a captured step reads.
  struct Numbers {
    torch::Tensor rate, steps;  // 0-dim float32, for LibTorch's kernels
    torch::Tensor all = {};     // 1-D float64, for `update_range`
  };

  /// Makes moments for the current layout and copies their values from the previous one. Called only when
  /// they are needed, so that the first moments are made on their final device.
  void adopt_layout();

  /// Writes the owned part of one of a parameter's moments.
  void store(const FlatSlot& slot, const torch::Tensor& owned, const torch::Tensor& values) const;

  void cut(const std::vector<FlatRange>& ranges, bool apart);

  void cut_by_parameters(const FlatRange& range, std::vector<Piece>& pieces);

  void cut_by_length(const FlatRange& range, std::vector<Piece>& pieces);

  /// Cuts `size` elements from `offset` on into pieces.
  void cut_by_length(std::size_t buffer, std::int64_t offset, std::int64_t size, std::vector<Piece>& pieces);

  bool is_offloaded() const { return mode_ == StepMode::offloaded; }
  bool is_captured() const { return mode_ == StepMode::captured; }

  /// True if parameters of this type are rounded by `rounding_`.
  bool rounds(const torch::TensorOptions& options) const;

  /// The owned share of one moment, by buffer; undefined where it isn't kept.
  std::vector<torch::Tensor> allocate(std::size_t moment) const;

  /// The number of moments kept for a buffer of this type. Only bfloat16 may have the last one, the
  /// compensation.
  std::size_t count_of_moments(const torch::TensorOptions& options) const;

  void update_piece(const Range& piece, const ParamGroup& group, std::int64_t steps);
  void update_in_float32(const Range& range, const ParamGroup& group, std::int64_t steps);

  void keep_training_weights();
  /// Moves the values from the training's weights to `average`, or back.
  void move_values(const Average& average, bool back);
  /// The training's weights in each buffer that this process holds only a share of; undefined for the other
  /// buffers.
  std::vector<torch::Tensor> training_weights_of_units() const;
  /// The training's weights of one parameter; `moment` is the one that `average()` names, and `units` may be
  /// empty if no buffer is divided.
  torch::Tensor training_weights(std::size_t slot, const torch::Tensor& moment,
                                 const std::vector<torch::Tensor>& units = {}) const;
  void set_training_weights(std::size_t slot, const torch::Tensor& weights);

  /// A piece's length: large enough to give each of ATen's threads its usual share, small enough for their
  /// caches.
  static std::int64_t piece_length();
  std::int64_t longest_piece(const torch::Tensor& values) const;

  /// Adds views of the moments, and of the compensation if it is kept, to a range; `view_of` takes a view of
  /// a buffer.
  template <class ViewOf>
  void add_moments(Range& range, std::size_t buffer, const ViewOf& view_of) const;

  static constexpr std::uint64_t no_generation = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::int64_t offloaded_length =
      std::int64_t{1} << 20;  // 4 MiB of float32, so that a copy is worth its overhead

  std::vector<Moment> moments_;
  Kernels kernels_;
  std::optional<RoundingOptions> rounding_;
  std::shared_ptr<const FlatLayout> layout_;
  std::vector<std::vector<torch::Tensor>> buffers_;  // the owned share, by moment and by buffer
  std::vector<std::vector<Piece>> pieces_;           // by range; reused while the ranges stay the same
  bool pieces_are_apart_ = false;
  Lists lists_;  // empty between steps, kept for its memory
  std::uint64_t generation_ = no_generation;
  torch::Tensor count_;  // the number of steps, which `lists_` refers to
  StepMode mode_ = StepMode::plain;
  std::map<std::size_t, HostStage> stages_;  // by buffer, if offloaded
  std::vector<Numbers> numbers_;             // by range, if captured
  WeightsInUse in_use_ = WeightsInUse::training;
  TensorCopies kept_;  // the training's weights, while `averaged` ones are in use
};

namespace detail {
/// The `sparse_fault` for a number that must be 0 with sparse gradients; empty if it is 0.
std::string must_be_zero(std::string_view name, double value);

/// Throws ArgumentError if the group has parameters and weight decay.
void refuse_weight_decay(const ParamGroup& group, std::string_view optimizer);
}  // namespace detail

}  // namespace etude::inline v0
