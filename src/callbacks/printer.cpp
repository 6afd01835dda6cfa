#include "etude/callbacks/printer.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "etude/base/console.hpp"
#include "etude/base/message.hpp"
#include "etude/base/named_format.hpp"
#include "etude/metrics/metrics.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// Logs as lines that fit the terminal, broken between entries; one line if its width is unknown.
std::string log_lines(const Metrics& logs, std::optional<int> columns) {
  auto text = fmt::format("{}\n", logs);
  if (!columns) return text;
  const auto width = static_cast<std::size_t>(*columns);
  for (std::size_t line = 0; text.size() - line > width;) {
    auto end = text.rfind(", ", line + width - 2);
    if (end == text.npos || end <= line) end = text.find(", ", line);  // an entry is wider than the terminal
    if (end == text.npos) break;
    text[++end] = '\n';
    text.insert(++end, " ");
    line = end;
  }
  return text;
}

}  // namespace

void print_logs(const Log& e) {
  for (const auto& format : e.args.log_lines) {
    const auto line = format_fields(format, [&](std::string_view name) -> std::optional<double> {
      if (const auto found = e.logs.find(name); found != e.logs.end()) return found->second;
      return name == "step" ? std::optional(static_cast<double>(e.state.global_step)) : std::nullopt;
    });
    if (line) write_text(stdout, *line + '\n');
  }
  if (!e.args.log_lines.empty()) return;
  auto logs = e.logs;
  logs.erase("total_flos");
  write_text(stdout, log_lines(logs, terminal_columns(stdout)));
}

}  // namespace detail

void PrinterCallback::on(const Log& e) {
  if (e.state.is_local_process_zero && e.args.report == ReportMode::lines) detail::print_logs(e);
}

}  // namespace etude::inline v0
