#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace etude::inline v0 {

/// Formats seconds: "01:05", "2:03:04".
std::string clock_text(double seconds);

/// The progress of a count as one line: "train  45%|#########           | 540/1200 [00:12<00:15, 44.1 it/s]",
/// cut to `width` columns; without a total, only the known parts.
std::string progress_line(std::string_view title, std::int64_t done, std::optional<std::int64_t> total,
                          double seconds, std::int64_t done_before, int width, bool unicode);

/// A progress bar on a stream. On a terminal it redraws its line at most ten times a second, in the
/// terminal's current width; elsewhere (a pipe, a file) it writes a plain line every ten seconds and a last
/// one.
///
/// While it lives, Etude's output (`etude::print` too) appears above it. Other output appears on lines of its
/// own after it, and the bar is drawn again below. A bar created while another exists covers it.
class ProgressBar {
 public:
  ProgressBar(std::FILE* out, std::string title, std::optional<std::int64_t> total,
              std::int64_t done_before = 0);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  void update(std::int64_t done);

  /// Leaves the last line on the screen.
  void close();

 private:
  using Clock = std::chrono::steady_clock;

  void draw();

  std::string line() const;

  static bool unicode();

  std::FILE* out_;
  std::string title_;
  std::optional<std::int64_t> total_;
  std::int64_t done_;
  std::int64_t done_before_;
  bool terminal_;
  Clock::time_point begun_ = Clock::now();
  Clock::time_point drawn_ = begun_;
};

}  // namespace etude::inline v0

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/progress_bar.ipp"
#endif
