#pragma once

#include "etude/base/error.hpp"
#include "etude/events.hpp"

namespace etude::inline v0 {

/// Makes batch norms use the batches of all processes; refused with an ArgumentError if there is only one
/// process. Named after pytorch-accelerated's callback, which silently does nothing there.
struct ConvertSyncBatchNormCallback {
  using this_callback = ConvertSyncBatchNormCallback;
  void on(const InitEnd&) {
    throw ArgumentError(
        "ConvertSyncBatchNormCallback: this trainer runs in one process, so a batch norm has no others to "
        "share statistics with; leave the callback out");
  }
};

}  // namespace etude::inline v0
