#include "etude/callbacks/timer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <regex>

#include "etude/base/error.hpp"
#include "etude/reflect/interval.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// A text that matches a pattern, and the numbers in its groups.
struct TimeFields {
  TimeFields(std::string_view text, const char* pattern)
      : fits(std::regex_match(text.data(), text.data() + text.size(), groups, std::regex(pattern))) {}
  int operator[](std::size_t group) const {
    return groups[group].matched ? std::stoi(groups[group].str()) : 0;
  }
  std::cmatch groups;
  bool fits;
};

}  // namespace

}  // namespace detail

double parse_duration(std::string_view text) {
  const detail::TimeFields fields(text, R"((\d\d):([01]\d|2[0-3]):([0-5]\d):([0-5]\d))");
  if (fields.fits) return 60.0 * (60.0 * (24.0 * fields[1] + fields[2]) + fields[3]) + fields[4];
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
  const detail::TimeFields fields(text, R"((\d{4})-(\d\d)-(\d\d)T([01]\d|2[0-3]):([0-5]\d):([0-5]\d))"
                                        R"((?:Z|([+-])([01]\d|2[0-3]):([0-5]\d)))");
  if (fields.fits) {
    const year_month_day date{year(fields[1]), month(static_cast<unsigned>(fields[2])),
                              day(static_cast<unsigned>(fields[3]))};
    const auto offset = hours(fields[8]) + minutes(fields[9]);
    if (date.ok())
      return sys_days(date) + hours(fields[4]) + minutes(fields[5]) + seconds(fields[6]) -
             (fields.groups[7] == "-" ? -offset : offset);
  }
  throw ArgumentError(fmt::format(
      "deadline is '{}': must be a moment such as 2026-05-31T18:00:00Z or 2026-05-31T20:00:00+02:00", text));
}

void TimerCallback::on(const TrainBegin& e) {
  limit = duration.empty() ? std::nullopt : std::optional(parse_duration(duration));
  until = deadline.empty() ? std::nullopt : std::optional(parse_deadline(deadline));
  if (e.state.global_step == 0) state = {};
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
  if (limit) left = *limit - state.time_elapsed;
  if (until) {
    const double seconds = std::chrono::duration<double>(*until - std::chrono::system_clock::now()).count();
    left = std::min(left.value_or(seconds), seconds);
  }
  return left;
}

void TimerCallback::measure() {
  if (!mark) return;
  const auto now = std::chrono::steady_clock::now();
  state.time_elapsed += std::chrono::duration<double>(now - *mark).count();
  mark = now;
}

void TimerCallback::stop_when_time_is_up(const Context& e) {
  if (limit && state.time_elapsed >= *limit)
    e.control.request_stop(fmt::format("the training has reached its duration of {}", duration));
  else if (until && std::chrono::system_clock::now() >= *until)
    e.control.request_stop(fmt::format("the deadline of {} has passed", deadline));
}

}  // namespace etude::inline v0
