#include "etude/callbacks/timer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/reflect/interval.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// Parses a text with a fixed format piece by piece.
class TimeReader {
 public:
  explicit TimeReader(std::string_view text) : text_(text) {}

  /// A number with `count` digits.
  int digits(std::size_t count) {
    int value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (at_ >= text_.size() || text_[at_] < '0' || text_[at_] > '9') failed_ = true;
      if (failed_) return 0;
      value = value * 10 + (text_[at_++] - '0');
    }
    return value;
  }

  bool take(char expected) {
    if (at_ >= text_.size() || text_[at_] != expected) return false;
    ++at_;
    return true;
  }
  void need(char expected) {
    if (!take(expected)) failed_ = true;
  }

  bool ended_well() const { return !failed_ && at_ == text_.size(); }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace

}  // namespace detail

double parse_duration(std::string_view text) {
  detail::TimeReader reader(text);
  const int days = reader.digits(2);
  reader.need(':');
  const int hours = reader.digits(2);
  reader.need(':');
  const int minutes = reader.digits(2);
  reader.need(':');
  const int seconds = reader.digits(2);
  if (reader.ended_well() && hours < 24 && minutes < 60 && seconds < 60)
    return 60.0 * (60.0 * (24.0 * days + hours) + minutes) + seconds;
  const auto time = Interval::from_text(text);
  const bool has_unit = !text.empty() && text.back() >= 'a' && text.back() <= 'z';
  const bool is_time = time && (time->unit() == IntervalUnit::seconds || !has_unit);
  if (!is_time || !(std::isfinite(time->value()) && time->value() >= 0))
    throw ArgumentError(fmt::format(
        "duration is '{}': must be a time such as 1h30m, 30s or 2d, DD:HH:MM:SS, or a number of seconds",
        text));
  return time->value();
}

std::chrono::system_clock::time_point parse_deadline(std::string_view text) {
  using namespace std::chrono;
  detail::TimeReader reader(text);
  const year y(reader.digits(4));
  reader.need('-');
  const month m(static_cast<unsigned>(reader.digits(2)));
  reader.need('-');
  const day d(static_cast<unsigned>(reader.digits(2)));
  reader.need('T');
  const int hour = reader.digits(2);
  reader.need(':');
  const int minute = reader.digits(2);
  reader.need(':');
  const int second = reader.digits(2);
  int sign = 0, offset_hours = 0, offset_minutes = 0;
  if (!reader.take('Z')) {
    sign = reader.take('-') ? -1 : 1;
    if (sign > 0) reader.need('+');
    offset_hours = reader.digits(2);
    reader.need(':');
    offset_minutes = reader.digits(2);
  }
  const year_month_day date{y, m, d};
  if (!reader.ended_well() || !date.ok() || hour > 23 || minute > 59 || second > 59 || offset_hours > 23 ||
      offset_minutes > 59)
    throw ArgumentError(fmt::format(
        "deadline is '{}': must be a moment such as 2026-05-31T18:00:00Z or 2026-05-31T20:00:00+02:00",
        text));
  return sys_days(date) + hours(hour) + minutes(minute) + seconds(second) -
         sign * (hours(offset_hours) + minutes(offset_minutes));
}

void TimerCallback::on(const TrainBegin& e) {
  limit = duration.empty() ? std::nullopt : std::optional(parse_duration(duration));
  until = deadline.empty() ? std::nullopt : std::optional(parse_deadline(deadline));
  if (e.state.global_step == 0) time_elapsed = 0;
  mark = std::chrono::steady_clock::now();
  stop_when_time_is_up(e);
}

void TimerCallback::on(const StepEnd& e) {
  measure();
  if (interval == TimerInterval::step) stop_when_time_is_up(e);
}

void TimerCallback::on(const EpochEnd& e) {
  measure();
  stop_when_time_is_up(e);
}

void TimerCallback::on(const TrainEnd&) {
  measure();
  mark.reset();
}

std::optional<double> TimerCallback::time_remaining() const {
  std::optional<double> left;
  if (limit) left = *limit - time_elapsed;
  if (until) {
    const double seconds = std::chrono::duration<double>(*until - std::chrono::system_clock::now()).count();
    left = std::min(left.value_or(seconds), seconds);
  }
  return left;
}

void TimerCallback::measure() {
  if (!mark) return;
  const auto now = std::chrono::steady_clock::now();
  time_elapsed += std::chrono::duration<double>(now - *mark).count();
  mark = now;
}

void TimerCallback::stop_when_time_is_up(const Context& e) {
  if (limit && time_elapsed >= *limit)
    e.control.request_stop(fmt::format("the training has reached its duration of {}", duration));
  else if (until && std::chrono::system_clock::now() >= *until)
    e.control.request_stop(fmt::format("the deadline of {} has passed", deadline));
}

}  // namespace etude::inline v0
