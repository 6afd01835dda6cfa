#include "etude/callbacks/convert_sync_batch_norm.hpp"

#include "etude/any_trainer.hpp"
#include "etude/base/message.hpp"

namespace etude::inline v0 {

void ConvertSyncBatchNormCallback::on(const TrainBegin& e) {
  auto& communicator = e.trainer.communicator();
  if (communicator.world_size() == 1)
    message(e.args, LogLevel::info,
            "ConvertSyncBatchNormCallback: this is the only process, so batch norms use its batches alone");
  else if (e.args.auto_microbatching)
    throw ArgumentError(
        "auto_microbatching is true: must be false with ConvertSyncBatchNormCallback, since the processes "
        "could divide their batches into different numbers of parts");
  synced_ = std::make_unique<SyncBatchNorms>(communicator, e.model);
  is_checked_ = communicator.world_size() == 1;
}

void ConvertSyncBatchNormCallback::on(const EpochEnd& e) {
  if (!is_checked_ && synced_ && synced_->calls() == 0)
    message(e.args, LogLevel::warning,
            "ConvertSyncBatchNormCallback: the model has used no batch norm in this epoch");
  is_checked_ = true;
}

}  // namespace etude::inline v0
