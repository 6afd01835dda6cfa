#include "etude/base/console.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "etude/base/progress_line.hpp"
#include "etude/base/sigpipe.hpp"

namespace etude::inline v0::detail {

namespace {

void write_and_flush(std::FILE* out, std::string_view text) noexcept {
  const WithoutSigpipe no_sigpipe;
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

}  // namespace

std::optional<int> terminal_columns(std::FILE* out) noexcept {
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return std::nullopt;
}

bool is_drawable(std::FILE* out) noexcept {
  const char* const name = std::getenv("TERM");
  return isatty(fileno(out)) != 0 && (name == nullptr || std::string_view(name) != "dumb");
}

namespace {

/// Whether the environment's locale uses UTF-8, even if the program hasn't set that locale.
bool has_utf8_locale() noexcept {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
      const std::string_view locale = value;
      return std::ranges::any_of(
          std::array{"UTF-8", "utf-8", "UTF8", "utf8"},
          [&](std::string_view encoding) { return locale.find(encoding) != locale.npos; });
    }
  return false;
}

/// Any value except an empty one turns colors off: https://no-color.org.
bool has_no_color() noexcept {
  const char* const value = std::getenv("NO_COLOR");
  return value != nullptr && *value != '\0';
}

/// A bar's line in the terminal's current width. The last column stays free.
std::string line_on(std::FILE* terminal, TerminalStyle style, std::span<const ProgressView> views) {
  style.columns = terminal_columns(terminal).value_or(80) - 1;
  return progress_line(views, style);
}

}  // namespace

Console& Console::instance() {
  // Never destroyed: other statics may print while `exit` destroys them.
  static Console& console = *new Console;
  return console;
}

void Console::write(std::FILE* out, std::string_view text) noexcept {
  const std::lock_guard lock(mutex_);
  const bool beside_a_bar = !bars_.empty() && !text.empty() && isatty(fileno(out)) != 0;
  if (beside_a_bar) hide();
  write_and_flush(out, text);
  if (!beside_a_bar) return;
  if (!text.ends_with('\n')) write_and_flush(out, "\n");
  show();
}

void Console::add(const void* owner, std::FILE* terminal, ProgressView view) {
  const std::lock_guard lock(mutex_);
  views_.push_back(std::move(view));
  const TerminalStyle style{.unicode = has_utf8_locale(), .colors = !has_no_color()};
  bars_.push_back({owner, terminal, style, std::this_thread::get_id()});
  show();
}

void Console::draw(const void* owner, ProgressView view) {
  const std::lock_guard lock(mutex_);
  const auto bar = std::ranges::find(bars_, owner, &Bar::owner);
  if (bar == bars_.end()) return;
  views_[static_cast<std::size_t>(bar - bars_.begin())] = std::move(view);
  show();
}

void Console::remove(const void* owner, const ProgressView* last) {
  const std::lock_guard lock(mutex_);
  const auto bar = std::ranges::find(bars_, owner, &Bar::owner);
  if (bar == bars_.end()) return;
  hide();
  if (last && std::ranges::find(bars_, bar->thread, &Bar::thread) == bar)
    write_and_flush(bar->terminal, line_on(bar->terminal, bar->style, {last, 1}) + "\n");
  views_.erase(views_.begin() + (bar - bars_.begin()));
  bars_.erase(bar);
  show();
}

void Console::show() const noexcept {
  if (bars_.empty()) return;
  const auto& bar = bars_.back();
  auto text = "\r" + line_on(bar.terminal, bar.style, views_) + "\x1b[K";
  // With the cursor in the last column, other output begins on the next line.
  if (const auto last = terminal_columns(bar.terminal)) text += fmt::format("\x1b[{}G ", *last);
  write_and_flush(bar.terminal, text);
}

void Console::hide() const noexcept {
  if (!bars_.empty()) write_and_flush(bars_.back().terminal, "\r\x1b[K");
}

}  // namespace etude::inline v0::detail
