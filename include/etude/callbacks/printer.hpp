#pragma once

#include "etude/events.hpp"
#include "etude/metrics/metrics.hpp"

namespace etude::inline v0 {
namespace detail {
/// Prints all logs but `total_flos`; on a terminal, lines are broken between entries.
void print_logs(Metrics logs);
}  // namespace detail

/// Prints the logs, in the first process of each machine, if there is no progress bar (`args.disable_tqdm`).
struct PrinterCallback {
  using this_callback = PrinterCallback;
  void on(const Log& e);
};

}  // namespace etude::inline v0
