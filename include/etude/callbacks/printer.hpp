#pragma once

#include "etude/events.hpp"

namespace etude::inline v0 {
namespace detail {
/// Prints a log: as `args.log_lines` say or, without any, whole but for `total_flos`, on a terminal with
/// lines that are broken between entries.
void print_logs(const Log& e);
}  // namespace detail

/// Prints the logs, in the first process of each machine, if `args.report` is lines. `args.log_lines` say
/// how.
struct PrinterCallback {
  using this_callback = PrinterCallback;
  void on(const Log& e);
};

}  // namespace etude::inline v0
