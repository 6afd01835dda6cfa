#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "etude/base/console.hpp"
#include "etude/base/linkage.hpp"
#include "etude/base/message.hpp"
#include "etude/callbacks/progress_bar.hpp"

namespace etude::inline v0 {

ETUDE_INLINE std::string clock_text(double seconds) {
  const auto s = static_cast<std::int64_t>(std::max(0.0, seconds));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{:02}:{:02}", s / 60, s % 60);
}

ETUDE_INLINE std::string progress_line(std::string_view title, std::int64_t done,
                                       std::optional<std::int64_t> total, double seconds,
                                       std::int64_t done_before, int width, bool unicode) {
  const double rate = seconds > 0 ? static_cast<double>(done - done_before) / seconds : 0;
  const auto speed =
      rate >= 1 || rate == 0 ? fmt::format("{:.1f} it/s", rate) : fmt::format("{:.1f} s/it", 1 / rate);
  if (!total)
    return fmt::format("{} {} [{}, {}]", title, done, clock_text(seconds), speed)
        .substr(0, std::size_t(width));
  const double fraction = *total > 0 ? std::clamp(double(done) / double(*total), 0.0, 1.0) : 1.0;
  const auto left = rate > 0 ? clock_text(double(*total - done) / rate) : "?";
  const auto head = fmt::format("{} {:3.0f}%", title, 100 * fraction);
  const auto tail = fmt::format(" {}/{} [{}<{}, {}]", done, *total, clock_text(seconds), left, speed);
  const int room = width - int(head.size()) - int(tail.size()) - 2;
  if (room < 4) return (head + tail).substr(0, std::size_t(std::max(width, 0)));
  static constexpr std::array parts{" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  const int cells = std::min(room, 40);
  const int eighths = int(fraction * cells * 8);
  std::string bar;
  for (int i = 0; i < cells; ++i) {
    const int filled = std::clamp(eighths - i * 8, 0, 8);
    if (!unicode)
      bar += filled == 8 ? '#' : ' ';
    else
      bar += parts[static_cast<std::size_t>(filled)];
  }
  return fmt::format("{}|{}|{}", head, bar, tail);
}

ETUDE_INLINE ProgressBar::ProgressBar(std::FILE* out, std::string title, std::optional<std::int64_t> total,
                                      std::int64_t done_before)
    : out_(out),
      title_(std::move(title)),
      total_(total),
      done_(done_before),
      done_before_(done_before),
      terminal_(isatty(fileno(out)) != 0) {
  if (!terminal_) return;
  detail::Console::instance().add(this, out_);
  draw();
}

ETUDE_INLINE ProgressBar::~ProgressBar() { detail::Console::instance().remove(this); }

ETUDE_INLINE void ProgressBar::update(std::int64_t done) {
  done_ = done;
  if (Clock::now() - drawn_ >=
      (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000)))
    draw();
}

ETUDE_INLINE void ProgressBar::close() {
  const auto last = line();
  detail::Console::instance().remove(this);
  // A pipe needs no line if nothing happened.
  if (terminal_ || done_ != done_before_) write_text(out_, last + "\n");
}

ETUDE_INLINE void ProgressBar::draw() {
  drawn_ = Clock::now();
  if (!terminal_) return write_text(out_, line() + "\n");
  auto text = "\r" + line() + "\x1b[K";
  // With the cursor in the last column, other output begins on the next line.
  if (const auto last = detail::terminal_columns(out_)) text += fmt::format("\x1b[{}G ", *last);
  detail::Console::instance().draw(this, std::move(text));
}

ETUDE_INLINE std::string ProgressBar::line() const {
  const double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
  const int width = terminal_ ? detail::terminal_columns(out_).value_or(80) - 1 : 100;
  return progress_line(title_, done_, total_, seconds, done_before_, width, unicode());
}

ETUDE_INLINE bool ProgressBar::unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
      const std::string_view locale = value;
      return locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos;
    }
  return false;
}

}  // namespace etude::inline v0
