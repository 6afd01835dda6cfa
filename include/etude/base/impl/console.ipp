#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "etude/base/console.hpp"
#include "etude/base/linkage.hpp"
#include "etude/base/sigpipe.hpp"

namespace etude::inline v0::detail {

inline void write_and_flush(std::FILE* out, std::string_view text) noexcept {
  const WithoutSigpipe no_sigpipe;
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

ETUDE_INLINE std::optional<int> terminal_columns(std::FILE* out) noexcept {
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return std::nullopt;
}

ETUDE_INLINE Console& Console::instance() {
  // Never destroyed: other statics may print while `exit` destroys them.
  static Console& console = *new Console;
  return console;
}

ETUDE_INLINE void Console::write(std::FILE* out, std::string_view text) noexcept {
  const std::lock_guard lock(mutex_);
  const bool beside_a_bar = !bars_.empty() && !text.empty() && isatty(fileno(out)) != 0;
  if (beside_a_bar) hide();
  write_and_flush(out, text);
  if (!beside_a_bar) return;
  if (!text.ends_with('\n')) write_and_flush(out, "\n");
  show();
}

ETUDE_INLINE void Console::add(const void* owner, std::FILE* terminal) {
  const std::lock_guard lock(mutex_);
  hide();
  bars_.push_back({owner, terminal, {}});
}

ETUDE_INLINE void Console::draw(const void* owner, std::string text) {
  const std::lock_guard lock(mutex_);
  const auto bar = std::ranges::find(bars_, owner, &Bar::owner);
  if (bar == bars_.end()) return;
  bar->text = std::move(text);
  if (owner == bars_.back().owner) show();
}

ETUDE_INLINE void Console::remove(const void* owner) noexcept {
  const std::lock_guard lock(mutex_);
  const auto bar = std::ranges::find(bars_, owner, &Bar::owner);
  if (bar == bars_.end()) return;
  const bool is_seen = owner == bars_.back().owner;
  if (is_seen) hide();
  bars_.erase(bar);
  if (is_seen) show();
}

ETUDE_INLINE void Console::show() const noexcept {
  if (!bars_.empty()) write_and_flush(bars_.back().terminal, bars_.back().text);
}

ETUDE_INLINE void Console::hide() const noexcept {
  if (!bars_.empty()) write_and_flush(bars_.back().terminal, "\r\x1b[K");
}

}  // namespace etude::inline v0::detail
