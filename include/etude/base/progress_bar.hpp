#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/progress_line.hpp"

namespace etude::inline v0 {
namespace detail {

/// The rate of a count over the last 15 seconds, or over the last 5 samples if that is longer.
class RateWindow {
 public:
  explicit RateWindow(std::int64_t done) : samples_{{0.0, done}} {}
  void add(double seconds, std::int64_t done);
  /// Per second; 0 if unknown.
  double rate() const;

 private:
  std::deque<std::pair<double, std::int64_t>> samples_;
};

}  // namespace detail

/// A progress bar on a stream. On a terminal it redraws its line at most ten times a second, in the
/// terminal's current width; elsewhere (a pipe, a file, TERM=dumb) it writes a plain line every ten seconds
/// and a final one.
///
/// While it lives, Etude's output (including `etude::print`) appears above it. Other output appears on
/// separate lines after it, and the bar is redrawn below. A bar created while another exists shares its line,
/// which then also shows the outer bar's progress.
class ProgressBar {
 public:
  using Fields = std::vector<std::pair<std::string, std::string>>;

  ProgressBar(std::FILE* out, std::string title, std::optional<std::int64_t> total,
              std::int64_t done_before = 0);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  void update(std::int64_t done);

  /// Shows these names and values, the most important first, after the rate and the times.
  void set_fields(Fields fields);
  void set_title(std::string title);

  /// The time between `pause` and `resume` doesn't count for the rate. The time left includes only expected
  /// pauses.
  void pause();
  void resume();
  /// Expects a pause like the last one whenever the count passes a multiple of `count`.
  void expect_pauses(double count) { pauses_every_ = count; }

  /// Leaves the last line on the screen, unless the bar shares another bar's line.
  void close();

 private:
  using Clock = std::chrono::steady_clock;

  void sample(Clock::time_point now);
  void draw();
  double active_seconds(Clock::time_point now) const;
  std::optional<double> time_left() const;
  detail::ProgressView view() const;

  std::FILE* out_;
  std::string title_;
  std::optional<std::int64_t> total_;
  std::int64_t done_;
  std::int64_t done_before_;
  Fields fields_ = {};
  bool terminal_;
  Clock::time_point begun_ = Clock::now();
  Clock::time_point sampled_ = begun_;
  Clock::time_point drawn_ = begun_;
  detail::RateWindow window_;
  std::optional<Clock::time_point> pause_begun_ = {};
  double paused_ = 0;              // seconds, in all
  double last_pause_ = 0;          // seconds, of all pauses at the last pause's count
  std::int64_t pause_count_ = -1;  // the last pause's count
  double pauses_every_ = 0;
};

}  // namespace etude::inline v0
