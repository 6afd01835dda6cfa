#pragma once

#include <cstdio>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "etude/base/progress_line.hpp"

namespace etude::inline v0::detail {

/// The width in columns of the terminal behind `out`; unset if it isn't a terminal or doesn't report one.
std::optional<int> terminal_columns(std::FILE* out) noexcept;

/// Whether `out` is a terminal that can redraw a line; false for TERM=dumb.
bool is_drawable(std::FILE* out) noexcept;

/// All console output of Etude goes through here, so that it appears above a progress bar on a terminal. Bars
/// that exist at the same time share one line, the last line of the output: a program can't know whether
/// another one has moved the terminal's cursor, so it couldn't find a second line again. One console serves
/// the whole process, from any thread.
class Console {
 public:
  static Console& instance();

  /// Writes `text`. A bar on the same terminal is erased first and redrawn afterwards.
  void write(std::FILE* out, std::string_view text) noexcept;

  /// Adds a bar on `terminal`; `owner` is its key.
  void add(const void* owner, std::FILE* terminal, ProgressView view);

  /// Redraws a bar, if it has been added.
  void draw(const void* owner, ProgressView view);

  /// Removes a bar. Leaves `last`, if given, on the screen as its last line, unless an earlier bar of this
  /// thread contains it.
  void remove(const void* owner, const ProgressView* last = nullptr);

 private:
  struct Bar {
    const void* owner;
    std::FILE* terminal;
    TerminalStyle style;  // except its columns
    std::thread::id thread;
  };

  void show() const noexcept;
  void hide() const noexcept;

  std::mutex mutex_;
  std::vector<Bar> bars_;
  std::vector<ProgressView> views_;  // one for each bar
};

}  // namespace etude::inline v0::detail
