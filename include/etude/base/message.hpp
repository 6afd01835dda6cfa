#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string_view>

#include "etude/base/linkage.hpp"

namespace etude::inline v0 {

/// Writes to `out`, ignoring errors: a closed stream must not end a training. On a terminal the text appears
/// above a progress bar.
void write_text(std::FILE* out, std::string_view text) noexcept;

/// Receives messages: the level ("warning") and the text, without an end of line. Called from any thread; its
/// exceptions are ignored.
using MessageHandler = std::function<void(std::string_view level, std::string_view text)>;

/// Sends the messages of all trainers in the process to `handler` instead of standard error; an empty handler
/// restores standard error. Returns the previous handler.
MessageHandler set_message_handler(MessageHandler handler);

namespace detail {
/// `rank` is this process's rank if there are several processes, or else -1.
void message(std::string_view level, std::int64_t rank, std::string_view text);

template <class Arguments>
std::int64_t rank_in(const Arguments& args) {
  if constexpr (requires { args.process_index(); })
    return args.world_size() > 1 ? args.process_index() : -1;
  else
    return -1;
}

/// fmt 12.2 deprecates the conversion, but fmt 9 has nothing else.
template <class Format>
fmt::string_view format_text(const Format& format) {
  if constexpr (requires { format.get(); })
    return format.get();
  else
    return format;
}
}  // namespace detail

/// `fmt::print` for callbacks: if a terminal shows a progress bar, the text gets its own lines above it.
template <class... Parts>
void print(fmt::format_string<Parts...> format, Parts&&... parts) {
  write_text(stdout, fmt::vformat(detail::format_text(format), fmt::make_format_args(parts...)));
}
template <class... Parts>
void print(std::FILE* out, fmt::format_string<Parts...> format, Parts&&... parts) {
  write_text(out, fmt::vformat(detail::format_text(format), fmt::make_format_args(parts...)));
}

/// Prints a message to standard error, or gives it to the `MessageHandler`, unless `args.log_level`
/// suppresses its level.
template <class Arguments, class Level, class... Parts>
void message(const Arguments& args, Level level, fmt::format_string<Parts...> format, Parts&&... parts) {
  if (args.shows(level))
    detail::message(to_string(level), detail::rank_in(args),
                    fmt::vformat(detail::format_text(format), fmt::make_format_args(parts...)));
}

}  // namespace etude::inline v0
