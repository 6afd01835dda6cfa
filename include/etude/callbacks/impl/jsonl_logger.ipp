#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "etude/base/linkage.hpp"
#include "etude/callbacks/jsonl_logger.hpp"
#include "etude/callbacks/log_file.hpp"
#include "etude/reflect/json.hpp"

namespace etude {

ETUDE_INLINE void JSONLinesLoggerCallback::on(const TrainBegin& e) {
  if (!e.state.is_world_process_zero) return;
  const auto file = detail::log_path(e.args, path);
  const auto before = detail::read_log(file);
  if (detail::begins_anew(e.state))
    lines_before = append ? std::count(before.begin(), before.end(), '\n') : 0;
  std::string text(detail::first_lines(before, lines_before));
  for (const auto& entry : e.state.log_history) {
    nlohmann::ordered_json line;
    if (const auto step = entry.find("step"); step != entry.end()) line["step"] = step->second;
    for (const auto& [name, value] : entry)
      line[name] =
          value.is_number_float() ? to_json_value(value.get<double>()) : nlohmann::ordered_json(value);
    text += line.dump() + '\n';
  }
  detail::replace_log(file, text);
}

ETUDE_INLINE void JSONLinesLoggerCallback::on(const Log& e) {
  if (!e.state.is_world_process_zero) return;
  nlohmann::ordered_json line{{"step", e.state.global_step}};
  for (const auto& [name, value] : e.logs) line[name] = to_json_value(value);
  detail::append_to_log(e.args, detail::log_path(e.args, path), line.dump() + '\n');
}

}  // namespace etude
