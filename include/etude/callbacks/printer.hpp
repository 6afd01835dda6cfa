#pragma once

#include <fmt/format.h>

#include <cstdio>

#include "etude/events.hpp"

namespace etude {

/// Prints the logs, in the first process of each machine, where there is no progress bar
/// (`args.disable_tqdm`).
struct PrinterCallback {
  void on(const Log& e) {
    if (!e.state.is_local_process_zero || !e.args.disable_tqdm.value_or(false)) return;
    auto logs = e.logs;
    logs.erase("total_flos");
    fmt::print("{}\n", logs);
    std::fflush(stdout);
  }
};

}  // namespace etude
