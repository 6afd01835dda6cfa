#pragma once

#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/linkage.hpp"

namespace etude::inline v0::detail {

/// The width in columns of the terminal behind `out`; unset if it isn't a terminal or doesn't report one.
std::optional<int> terminal_columns(std::FILE* out) noexcept;

/// All console output of Etude goes through here, so that it appears above a progress bar on a terminal. With
/// several bars, only the latest is visible; removing it brings back the one before. One console serves the
/// whole process, from any thread.
class Console {
 public:
  static Console& instance();

  /// Writes `text`. A bar on the same terminal is erased first and redrawn afterwards.
  void write(std::FILE* out, std::string_view text) noexcept;

  /// Adds a bar on `terminal`; `owner` is its key.
  void add(const void* owner, std::FILE* terminal);

  /// Sets the text of a bar, and draws it if that bar is visible.
  void draw(const void* owner, std::string text);

  /// Removes a bar.
  void remove(const void* owner) noexcept;

 private:
  struct Bar {
    const void* owner;
    std::FILE* terminal;
    std::string text;
  };

  void show() const noexcept;
  void hide() const noexcept;

  std::mutex mutex_;
  std::vector<Bar> bars_;  // only the last one is visible
};

}  // namespace etude::inline v0::detail

#ifndef ETUDE_COMPILED
#include "etude/base/impl/console.ipp"
#endif
