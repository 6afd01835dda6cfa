#include "etude/loop/log_history.hpp"

namespace etude::inline v0 {

std::size_t LogHistory::add(Metrics& logs) {
  const auto line = state_.log_history.size();
  state_.log_history.emplace_back();
  set(line, logs);
  return line;
}

void LogHistory::set(std::size_t line, Metrics& logs) {
  logs.drop_signs_of_nan();
  auto& entry = state_.log_history.at(line);
  entry = LogEntry(logs.begin(), logs.end());
  entry["step"] = state_.global_step;
  text_.forget_from(line);
}

void LogHistory::drop_from(std::size_t line) {
  state_.log_history.resize(line);
  text_.forget_from(line);
}

}  // namespace etude::inline v0
