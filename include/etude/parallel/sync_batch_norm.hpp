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
/// batches of all processes, weighted by their sizes (which may differ): outputs, running statistics and the
/// sums of the processes' gradients are the same as in one process with the whole batch. In evaluation mode,
/// batch norms work as usual. This replaces the underlying operator, so it also applies to TorchScript and to
/// calls of torch::batch_norm with a parameter or buffer of the model, but not to InstanceNorm.
///
/// A batch norm sends one message in the forward pass and one in the backward pass, in the order of the
/// graph, so all processes must have the same graph. LibTorch's modules refuse a batch with one value per
/// channel in any process. Gradients of gradients throw Error.
class SyncBatchNorms {
 public:
  /// Does nothing if there is one process. Throws ArgumentError for a TorchScript batch norm without
  /// parameters and buffers, since batch norms are recognized by these.
  SyncBatchNorms(Communicator& communicator, const Model& model);
  SyncBatchNorms(const SyncBatchNorms&) = delete;
  SyncBatchNorms& operator=(const SyncBatchNorms&) = delete;
  ~SyncBatchNorms();

  /// The number of batch norms' forward passes that were synchronized.
  std::int64_t calls() const;

 private:
  std::shared_ptr<detail::SyncedModel> synced_;
};

}  // namespace etude::inline v0
