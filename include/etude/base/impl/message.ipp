#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string_view>

#include "etude/base/console.hpp"
#include "etude/base/linkage.hpp"
#include "etude/base/message.hpp"

namespace etude::inline v0 {

ETUDE_INLINE void write_text(std::FILE* out, std::string_view text) noexcept {
  detail::Console::instance().write(out, text);
}

ETUDE_INLINE void detail::print(std::FILE* out, fmt::string_view format, fmt::format_args parts) {
  write_text(out, fmt::vformat(format, parts));
}

ETUDE_INLINE void detail::message(std::string_view level, std::int64_t rank, fmt::string_view format,
                                  fmt::format_args parts) {
  const auto origin = rank < 0 ? "" : fmt::format("rank {}: ", rank);
  write_text(stderr, fmt::format("etude: {}{}: {}\n", origin, level, fmt::vformat(format, parts)));
}

}  // namespace etude::inline v0
