#include "etude/callbacks/log_metrics.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "etude/base/message.hpp"

namespace etude::inline v0 {

Metrics NewMetrics::take(const RunHistory& history, bool of_training) {
  Metrics metrics;
  for (const auto& name : history.get_metric_names()) {
    if (name.starts_with("train") != of_training) continue;
    const auto values = history.get_metric_values(name);
    if (values.size() != std::exchange(seen_[name], values.size()) && !values.empty())
      metrics[name] = values.back();
  }
  return metrics;
}

void NewMetrics::skip(const RunHistory& history) {
  seen_.clear();
  for (const auto& name : history.get_metric_names()) seen_[name] = history.get_metric_values(name).size();
}

void detail::print_metrics(const Context& e, const Metrics& metrics) {
  if (!e.state.is_local_process_zero) return;
  std::string text;
  for (const auto& [name, value] : metrics)
    text += fmt::format("\n{}: {}\n", name, without_sign_of_nan(value));
  write_text(stdout, text);
}

}  // namespace etude::inline v0
