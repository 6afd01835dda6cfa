#pragma once

#include <cstdint>
#include <memory>

#include "etude/model/model.hpp"
#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {
namespace detail {

class SyncedModel;

}  // namespace detail

/// While this lives, the batch norms of a model in training mode normalize by the mean and variance of the
/// batches of all processes, weighted by their sizes (which may differ): outputs, running statistics and,
/// summed over the processes, gradients are those of one process with the whole batch. In evaluation mode,
/// batch norms are LibTorch's own. It works on the operator beneath, so torch::nn modules, TorchScript and
/// calls of torch::batch_norm with a parameter or buffer of the model are treated alike, but not
/// InstanceNorm.
///
/// A batch norm sends one message in the forward pass and one in the backward pass, in the order of the
/// graph, so all processes must have the same graph. LibTorch's modules refuse a batch of one value a channel
/// in any process. Gradients of gradients throw an Error.
class SyncBatchNorms {
 public:
  /// Does nothing if there is one process. Throws ArgumentError for a TorchScript batch norm that has neither
  /// parameters nor buffers, by which others are recognized.
  SyncBatchNorms(Communicator& communicator, const Model& model);
  SyncBatchNorms(const SyncBatchNorms&) = delete;
  SyncBatchNorms& operator=(const SyncBatchNorms&) = delete;
  ~SyncBatchNorms();

  /// The number of forward passes of batch norms that were synchronized.
  std::int64_t calls() const;

 private:
  std::shared_ptr<detail::SyncedModel> synced_;
};

}  // namespace etude::inline v0
