#pragma once

#include <fmt/core.h>

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "etude/reflect/enum.hpp"

namespace etude::inline v0 {

/// The unit of an interval, with the suffixes of Composer's time strings.
///
/// - `steps`: update steps (Composer's batches): "100", "100ba".
/// - `share`: a fraction of all steps of the training: "0.25", "0.25dur".
/// - `epochs`: "1ep", "0.5ep".
/// - `samples`: examples trained on: "1000sp".
/// - `tokens`: input tokens trained on: "3e4tok".
/// - `seconds`: training time: "30s", "5min", "1h30m", "2d".
ETUDE_ENUM(IntervalUnit, steps, share, epochs, samples, tokens, seconds);

/// How often something is done. In code, in JSON and on the command line it is a number (update steps, or
/// below 1 a fraction of all steps) or a string with a unit: `args.logging_steps = 50`, `"1ep"`,
/// `--save_steps 30min`.
class Interval {
 public:
  static constexpr std::string_view allowed =
      "a number of update steps, below 1 a fraction of all, or a number with a unit: ep (epochs), ba "
      "(update steps), sp (samples), tok (tokens), dur (fraction of all steps), or a time in d, h, min, s as "
      "30s or "
      "1h30m";
  static constexpr std::string_view placeholder = "INTERVAL";

  /// Never: an interval that isn't set.
  Interval() = default;
  /// Update steps, or a fraction of all steps. Accepts any number; `is_valid` checks it.
  template <class Number>
    requires(std::integral<Number> || std::floating_point<Number>) && (!std::same_as<Number, bool>)
  Interval(Number number) : Interval(plain(static_cast<double>(number))) {}
  /// Throws an ArgumentError that lists the valid forms.
  Interval(std::string_view text) : Interval(parse(text)) {}
  Interval(const char* text) : Interval(parse(text)) {}
  Interval(const std::string& text) : Interval(parse(text)) {}
  Interval(double value, IntervalUnit unit) : value_(value), unit_(unit) {}

  double value() const { return value_; }
  IntervalUnit unit() const { return unit_; }

  /// Whether it counts update steps or a fraction of them, which are known before the training begins.
  bool is_of_steps() const { return unit_ == IntervalUnit::steps || unit_ == IntervalUnit::share; }

  /// Whether it is finite and positive, and an integer if it counts steps, or at most 1 if it is a fraction.
  bool is_valid() const;
  /// A description of the valid values for this unit.
  std::string_view valid_values() const;

  /// The equivalent number of update steps if `max_steps` are planned, with a fraction rounded up; 0 for
  /// other units and invalid values.
  std::int64_t steps(std::int64_t max_steps) const;

  /// The form that `Interval(text)` reads: "500", "0.25", "1ep", "1h30m".
  std::string text() const;

  // For JSON and the command line (reflect/json_reader.hpp).
  static std::optional<Interval> from_number(double number) { return plain(number); }
  static std::optional<Interval> from_text(std::string_view text);
  std::optional<double> plain_number() const;

  friend bool operator==(const Interval&, const Interval&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Interval& interval);

 private:
  static Interval plain(double number) {
    return {number, number > 0 && number < 1 ? IntervalUnit::share : IntervalUnit::steps};
  }
  static Interval parse(std::string_view text);

  double value_ = 0;
  IntervalUnit unit_ = IntervalUnit::steps;
};

}  // namespace etude::inline v0

template <>
struct fmt::formatter<etude::Interval> : fmt::formatter<std::string_view> {
  template <class FormatContext>
  auto format(const etude::Interval& interval, FormatContext& context) const {
    return fmt::formatter<std::string_view>::format(interval.text(), context);
  }
};
