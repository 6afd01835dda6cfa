#pragma once

#include <fmt/format.h>

#include <cstdio>

#include "etude/callbacks/printer.hpp"
#include "etude/events.hpp"
#include "etude/linkage.hpp"
#include "etude/message.hpp"

namespace etude {

ETUDE_INLINE void PrinterCallback::on(const Log& e) {
  if (!e.state.is_local_process_zero || !e.args.disable_tqdm.value_or(false)) return;
  auto logs = e.logs;
  logs.erase("total_flos");
  write_text(stdout, fmt::format("{}\n", logs));
}

}  // namespace etude
