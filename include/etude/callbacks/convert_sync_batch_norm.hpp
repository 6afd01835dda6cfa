#pragma once

#include "etude/base/error.hpp"
#include "etude/events.hpp"

namespace etude {

/// Makes batch norms see the batches of all processes; refused, by an ArgumentError, where there is one
/// process. Has the name of pytorch-accelerated's callback, which does nothing there and says nothing.
struct ConvertSyncBatchNormCallback {
  using this_callback = ConvertSyncBatchNormCallback;
  void on(const InitEnd&) {
    throw ArgumentError(
        "ConvertSyncBatchNormCallback: this trainer runs in one process, where a batch norm has no others to "
        "share statistics with; leave the callback out");
  }
};

}  // namespace etude
