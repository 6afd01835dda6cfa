#pragma once

#include "etude/events.hpp"

namespace etude::inline v0 {
namespace detail {
/// Prints a log in the formats of `args.log_lines`. Without formats, prints every entry except `total_flos`;
/// on a terminal, lines break between entries.
void print_logs(const Log& e);
}  // namespace detail

/// Prints the logs, in the first process of each machine, if `args.report` is lines.
struct PrinterCallback {
  void on(const Log& e);
};

}  // namespace etude::inline v0
