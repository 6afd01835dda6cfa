#pragma once

#include <memory>

#include "etude/events.hpp"
#include "etude/parallel/sync_batch_norm.hpp"

namespace etude::inline v0 {

/// Makes the model's batch norms use the batches of all processes during training: see SyncBatchNorms. With
/// one process it changes nothing, and logs that at level info. Warns after the first epoch if the model has
/// used no batch norm. Named after pytorch-accelerated's callback.
struct ConvertSyncBatchNormCallback {
  void on(const TrainBegin& e);
  void on(const EpochEnd& e);
  void on(const TrainEnd&) { synced_.reset(); }

 private:
  std::unique_ptr<SyncBatchNorms> synced_;
  bool is_checked_ = false;
};

}  // namespace etude::inline v0
