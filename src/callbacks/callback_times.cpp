#include "etude/callbacks/callback_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "etude/base/message.hpp"

namespace etude::inline v0 {

void CallbackTimes::add(std::string_view callback, std::string_view event,
                        std::chrono::steady_clock::duration time) {
  auto row = std::ranges::find_if(
      rows_, [&](const Row& known) { return known.callback == callback && known.event == event; });
  if (row == rows_.end()) row = rows_.insert(row, Row{callback, event});
  ++row->calls;
  row->total += time;
  row->longest = std::max(row->longest, time);
}

std::vector<CallbackTimes::Row> CallbackTimes::rows() const {
  auto rows = rows_;
  std::ranges::stable_sort(rows, std::ranges::greater{}, &Row::total);
  return rows;
}

std::string CallbackTimes::table() const {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  auto text = fmt::format("{:<32} {:<20} {:>9} {:>12} {:>12} {:>12}\n", "callback", "event", "calls",
                          "total ms", "mean us", "longest us");
  for (const auto& row : rows()) {
    const auto total = Milliseconds(row.total).count();
    text += fmt::format("{:<32} {:<20} {:>9} {:>12.3f} {:>12.2f} {:>12.2f}\n", row.callback, row.event,
                        row.calls, total, 1e3 * total / static_cast<double>(row.calls),
                        1e3 * Milliseconds(row.longest).count());
  }
  return text;
}

void CallbackTimes::on(const TrainBegin&) { rows_.clear(); }

void CallbackTimes::on(const TrainEnd& e) {
  if (e.state.is_local_process_zero) write_text(stdout, table());
}

}  // namespace etude::inline v0
