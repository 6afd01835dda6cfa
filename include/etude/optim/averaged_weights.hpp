#pragma once

#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etude/libtorch/tensor_copies.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

class FlatParameters;
class Optimizer;
struct FlatLayout;

/// An average of a model's weights over a training, kept on the weights' device. Weights in the optimizer's
/// flat buffers are averaged in one pass over memory. Weights with fewer than 32 bits are averaged in 32
/// bits.
class AveragedWeights {
 public:
  /// Starts with the current weights. With `use_buffers`, floating-point buffers such as running means are
  /// averaged and all other buffers copied; otherwise the average uses the model's buffers as they are.
  AveragedWeights(Model model, bool use_buffers);

  /// average += weight * (model - average); a weight of 1 copies the model. `optimizer` is the optimizer that
  /// trains the model.
  void update(Optimizer& optimizer, double weight);

  /// The averages; each tensor occurs once, under its first name. The tensors aren't copies.
  std::vector<NamedTensor> state() const;

  /// Restores averages that `state` returned. Throws a CheckpointError that lists missing tensors and wrong
  /// shapes; nothing is changed in that case.
  void load(const std::vector<NamedTensor>& state);

  /// The model's state, with averages instead of weights, in the form of `Model::state_dict`.
  std::vector<NamedTensor> model_state() const;

  void copy_to_model() const;

  /// Restores the model's weights on destruction.
  class Swap {
   public:
    Swap(const Swap&) = delete;
    Swap& operator=(const Swap&) = delete;
    ~Swap();

   private:
    friend class AveragedWeights;
    explicit Swap(const AveragedWeights& weights);

    TensorCopies own_;
  };

  /// Puts the averages into the model until the guard is destroyed.
  [[nodiscard]] Swap swap_in() const { return Swap(*this); }

 private:
  struct Part {
    std::string name;
    torch::Tensor own;
    torch::Tensor average;
    bool is_flat = false;
  };

  void lay_out(const FlatParameters& parameters);

  Model model_;
  std::vector<Part> parts_;
  std::shared_ptr<const FlatLayout> layout_;  // the layout of `flat_`
  std::vector<torch::Tensor> flat_;           // one per buffer of the optimizer
  std::vector<torch::Tensor> single_;         // averages outside the flat buffers
};

}  // namespace etude::inline v0
