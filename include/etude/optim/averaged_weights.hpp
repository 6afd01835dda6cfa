#pragma once

#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/model/model.hpp"

namespace etude {

class FlatParameters;
class Optimizer;
struct FlatLayout;

/// An average of a model's weights over a training, kept on their device. What the optimizer has laid flat is
/// averaged in one pass over memory. Weights of fewer than 32 bits are averaged in 32.
class AveragedWeights {
 public:
  /// Begins with the weights as they are. With `use_buffers`, running means and the like are averaged too,
  /// and those that aren't floating-point numbers copied; without, the average goes with the model's own.
  AveragedWeights(Model model, bool use_buffers);

  /// average += weight * (model - average); a weight of 1 copies the model. `optimizer` is the model's.
  void update(Optimizer& optimizer, double weight);

  /// What is averaged, each tensor once by the first of its names; the tensors are not copies.
  std::vector<NamedTensor> state() const;

  /// Takes over what `state` gave. Throws CheckpointError that lists what is missing or of another shape;
  /// nothing is changed then.
  void load(const std::vector<NamedTensor>& state);

  /// The model's whole state with the averages in it, in the form of `Model::state_dict`.
  std::vector<NamedTensor> model_state() const;

  void copy_to_model() const;

  /// Gives the model its own weights back at the end.
  class Swap {
   public:
    Swap(const Swap&) = delete;
    Swap& operator=(const Swap&) = delete;
    ~Swap();

   private:
    friend class AveragedWeights;
    explicit Swap(const AveragedWeights& weights);

    std::vector<std::pair<torch::Tensor, torch::Tensor>> own_;  // each with a copy
  };

  /// Puts the averages into the model for as long as the guard lives.
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
  std::shared_ptr<const FlatLayout> layout_;  // that `flat_` has
  std::vector<torch::Tensor> flat_;           // one for each of the optimizer's buffers
  std::vector<torch::Tensor> single_;         // averages that don't lie there
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/optim/impl/averaged_weights.ipp"
#endif
