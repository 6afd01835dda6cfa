#pragma once

#include <fmt/format.h>

#include <cstdio>

#include "etude/events.hpp"
#include "etude/message.hpp"

namespace etude {

/// Prints the logs, in the first process of each machine, where there is no progress bar
/// (`args.disable_tqdm`).
struct PrinterCallback {
  void on(const Log& e) {
    if (!e.state.is_local_process_zero || !e.args.disable_tqdm.value_or(false)) return;
    auto logs = e.logs;
    logs.erase("total_flos");
    write_text(stdout, fmt::format("{}\n", logs));
  }
};

}  // namespace etude
