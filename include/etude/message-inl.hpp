#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "etude/console.hpp"
#include "etude/linkage.hpp"
#include "etude/message.hpp"

namespace etude {

ETUDE_INLINE void write_text(std::FILE* out, std::string_view text) noexcept {
  detail::Console::instance().write(out, text);
}

ETUDE_INLINE void detail::print(std::FILE* out, fmt::string_view format, fmt::format_args parts) {
  write_text(out, fmt::vformat(format, parts));
}

ETUDE_INLINE void detail::message(const TrainingArguments& args, LogLevel level, fmt::string_view format,
                                  fmt::format_args parts) {
  const auto threshold = args.log_level == LogLevel::passive ? LogLevel::warning : args.log_level;
  if (level >= threshold)
    write_text(stderr, fmt::format("etude: {}: {}\n", level, fmt::vformat(format, parts)));
}

}  // namespace etude
