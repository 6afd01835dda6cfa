#pragma once

#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/linkage.hpp"

namespace etude::detail {

/// Columns of the terminal that `out` goes to; unset where it is no terminal or doesn't say.
std::optional<int> terminal_columns(std::FILE* out) noexcept;

/// Where everything that Etude prints goes through, so that it stands above a progress bar on a terminal. Of
/// several bars the one that was added last is on the screen, and the one before comes back when it is gone.
/// There is one console in a process; any thread may use it.
class Console {
 public:
  static Console& instance();

  /// Writes `text`. Where it goes to a terminal on which a bar is drawn, the bar is taken away meanwhile.
  void write(std::FILE* out, std::string_view text) noexcept;

  /// Adds a bar, known by the address of its owner, on `terminal`.
  void add(const void* owner, std::FILE* terminal);

  /// Gives a bar this text, and draws it if it is the one on the screen.
  void draw(const void* owner, std::string text);

  /// Takes a bar away.
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
  std::vector<Bar> bars_;  // the last is on the screen
};

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/base/impl/console.ipp"
#endif
