#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace etude {

/// Seconds as people read them: "01:05", "2:03:04".
std::string clock_text(double seconds);

/// One line that says how far a count has come: "train  45%|#########           | 540/1200 [00:12<00:15, 44.1
/// it/s]", cut to `width` columns; without a total, only what is known.
std::string progress_line(std::string_view title, std::int64_t done, std::optional<std::int64_t> total,
                          double seconds, std::int64_t done_before, int width, bool unicode);

/// A progress bar on a stream. On a terminal it redraws its line at most ten times a second, to the width
/// that the terminal has at that moment; elsewhere (a pipe, a file) it writes a plain line every ten seconds
/// and a last one.
///
/// While it lives, what Etude prints (`etude::print` too) stands above it. Text that something else prints
/// stands on lines of its own behind it, and the bar is drawn anew below. A bar that is made while another is
/// there covers it.
class ProgressBar {
 public:
  ProgressBar(std::FILE* out, std::string title, std::optional<std::int64_t> total,
              std::int64_t done_before = 0);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  void update(std::int64_t done);

  /// Leaves the last line standing.
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

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/progress_bar.ipp"
#endif
