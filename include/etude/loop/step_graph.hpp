#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "etude/base/function_ref.hpp"
#include "etude/data/batch.hpp"
#include "etude/libtorch/device_graph.hpp"
#include "etude/model/model.hpp"
#include "etude/optim/optimizer.hpp"

namespace etude::inline v0 {

/// Captures a training step in a graph of the device, and replays it for batches of the same form. The first
/// steps of a form run one operator at a time, as do steps of other forms once there is a graph. A graph is
/// captured again after the model's tensors have moved, parameters were frozen or unfrozen, a weight decay
/// was changed, or the optimizer's state was loaded.
class StepGraph {
 public:
  /// The steps before a capture, in which libraries set themselves up and the memory of the optimizer gets
  /// its final place.
  static constexpr int warmup_steps = 3;

  /// Both must outlive this. Throws ArgumentError for an optimizer that can't be captured.
  StepGraph(torch::Device device, const Model& model, Optimizer& optimizer);
  ~StepGraph();

  /// Makes a step: `work` computes the loss of a batch and its gradients, clips them and lets the optimizer
  /// make its step, and returns the results, such as the loss, on the device. They are valid until the next
  /// step. A replay repeats nothing that `work` does on the host.
  std::vector<torch::Tensor> run(const Batch& batch,
                                 detail::FunctionRef<std::vector<torch::Tensor>(Batch&)> work);

  /// The number of replayed steps.
  std::int64_t replayed() const { return replayed_; }

 private:
  /// The place of a tensor, and whether it is trained.
  struct Place {
    torch::Tensor tensor;
    const void* data = nullptr;
    bool requires_grad = false;
  };

  bool is_outdated() const;
  void capture(const Batch& batch, detail::FunctionRef<std::vector<torch::Tensor>(Batch&)> work);

  const Model& model_;
  Optimizer& optimizer_;
  DeviceGraph graph_;
  Batch inputs_;  // of the captured step, or the last one before it
  int warmup_ = 0;
  bool is_captured_ = false;
  std::vector<torch::Tensor> results_;
  std::vector<Place> places_;
  std::vector<double> weight_decays_;  // by group
  std::uint64_t generation_ = 0;
  std::int64_t replayed_ = 0;
};

}  // namespace etude::inline v0
