#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace etude::inline v0 {

/// Formats seconds: "01:05", "2:03:04".
std::string clock_text(double seconds);

namespace detail {

/// The contents of a progress bar.
struct ProgressView {
  enum class State { running, complete, stopped };

  std::string title = {};
  std::int64_t done = 0;
  std::optional<std::int64_t> total = {};
  double elapsed = 0;               ///< seconds
  double rate = 0;                  ///< iterations per second; 0 if unknown
  std::optional<double> left = {};  ///< seconds
  /// Names and values, the most important first. Names without a value are hidden.
  std::vector<std::pair<std::string, std::string>> fields = {};
  State state = State::running;
};

/// The size and abilities of a terminal.
struct TerminalStyle {
  int columns = 80;  ///< the line's maximum width
  bool unicode = false;
  bool colors = false;
};

/// One line of a terminal that shows the last of `bars` (at least one), preceded by a short form of the bars
/// that contain it: "train  45% > eval  30% |######              | 15/50  12.1 it/s  00:01  eta 00:02".
/// Narrower lines have fewer parts.
std::string progress_line(std::span<const ProgressView> bars, const TerminalStyle& style);

/// A bar without its drawn part, for a file: "train  45%  540/1200  44.1 it/s  00:12  eta 00:15  loss 0.31".
std::string plain_progress_line(const ProgressView& bar);

}  // namespace detail
}  // namespace etude::inline v0
