#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "etude/training_arguments.hpp"

namespace etude {

/// Writes to a stream that may be gone, which is no reason to end a training.
inline void write_text(std::FILE* out, std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

/// Says something to the person at the terminal, on standard error, unless `args.log_level` asks for less.
template <class... Parts>
void message(const TrainingArguments& args, LogLevel level, fmt::format_string<Parts...> format,
             Parts&&... parts) {
  const auto threshold = args.log_level == LogLevel::passive ? LogLevel::warning : args.log_level;
  if (level < threshold) return;
  write_text(stderr,
             fmt::format("etude: {}: {}\n", level, fmt::format(format, std::forward<Parts>(parts)...)));
}

}  // namespace etude
