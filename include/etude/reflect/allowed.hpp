#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace etude::inline v0 {

/// The values that a field allows, among those of its type. They follow the field's description in
/// ETUDE_STRUCT, as in `"passes" | at_least(1)`; the functions that make them are in namespace `allowed`. A
/// number with any bound must also be finite.
class Allowed {
 public:
  constexpr Allowed() = default;

  constexpr Allowed at_most(double most) const { return with(most, true); }
  constexpr Allowed below(double most) const { return with(most, false); }
  /// Also allows this number, even outside the bounds.
  constexpr Allowed or_just(double other) const {
    auto result = *this;
    result.other_ = other;
    return result;
  }

  constexpr bool allows(double number) const {
    if (!is_number_ || number == other_) return true;
    constexpr auto infinity = std::numeric_limits<double>::infinity();
    return (with_least_ ? number >= least_ : number > least_) &&
           (with_most_ ? number <= most_ : number < most_) && number < infinity && number > -infinity;
  }

  constexpr bool is_number() const { return is_number_; }
  constexpr bool is_not_empty() const { return is_not_empty_; }
  constexpr std::span<const std::string_view> names() const { return names_; }

  /// A description such as "at least 0 and below 1"; empty if everything is allowed. `must_say_finite` adds
  /// "and finite" unless two bounds imply it.
  std::string text(bool must_say_finite = false) const;

  static constexpr Allowed from(double least, bool with_least) {
    Allowed result;
    result.is_number_ = true;
    result.least_ = least;
    result.with_least_ = with_least;
    return result;
  }
  static constexpr Allowed of(std::span<const std::string_view> names) {
    Allowed result;
    result.names_ = names;
    return result;
  }
  static constexpr Allowed not_empty() {
    Allowed result;
    result.is_not_empty_ = true;
    return result;
  }

 private:
  constexpr Allowed with(double most, bool with_most) const {
    auto result = *this;
    result.is_number_ = true;
    result.most_ = most;
    result.with_most_ = with_most;
    return result;
  }

  double least_ = -std::numeric_limits<double>::infinity(), most_ = std::numeric_limits<double>::infinity();
  double other_ = std::numeric_limits<double>::quiet_NaN();
  bool is_number_ = false, with_least_ = true, with_most_ = true, is_not_empty_ = false;
  std::span<const std::string_view> names_;
};

/// The values of a field that a hyperparameter search tries. They follow the field's description in
/// ETUDE_STRUCT, as in `"hidden units" | at_least(1) | searched(16, 512).log()`.
struct Searched {
  bool is_searched = false, has_range = false;
  double low = 0, high = 0;
  std::optional<double> spacing = {};  ///< the step
  bool is_log = false;
  std::span<const double> numbers = {};
  std::span<const std::string_view> names = {};
  std::string_view condition = {}, condition_value = {};  ///< only if the field `condition` has this value

  /// Samples uniformly in the logarithm.
  constexpr Searched log() const {
    auto result = *this;
    result.is_log = true;
    return result;
  }
  /// Tries only `low`, `low + size`, and so on.
  constexpr Searched step(double size) const {
    auto result = *this;
    result.spacing = size;
    return result;
  }
  /// Searched only in trials in which an earlier field of any struct has this value, spelled as in JSON or on
  /// the command line: `.only_if("optim", "sgd")`.
  constexpr Searched only_if(std::string_view field, std::string_view value) const {
    auto result = *this;
    result.condition = field;
    result.condition_value = value;
    return result;
  }
};

/// How the command line gives a field its value. It follows the field's description in ETUDE_STRUCT, as in
/// `"files to read" | not_empty() | positional()`.
enum class Spelling {
  flag,        ///< `--name value`; a list takes several words, or one with commas
  positional,  ///< words without a flag, in the order of the fields; a list takes all remaining words
  repeated     ///< for a list: `--name value`, once for each of its items
};

/// Visible by their short names inside ETUDE_STRUCT.
namespace allowed {

/// All values of an enum or a bool.
constexpr Searched searched() { return {.is_searched = true}; }
/// Numbers from `low` to `high`, both included.
constexpr Searched searched(double low, double high) {
  return {.is_searched = true, .has_range = true, .low = low, .high = high};
}
/// Only these values, which must outlive the struct's users.
constexpr Searched searched_among(std::span<const double> numbers) {
  return {.is_searched = true, .numbers = numbers};
}
constexpr Searched searched_among(std::span<const std::string_view> names) {
  return {.is_searched = true, .names = names};
}
template <class T, std::size_t N>
Searched searched_among(const std::array<T, N>&&) = delete;  // the values must outlive the struct's users

constexpr Allowed at_least(double least) { return Allowed::from(least, true); }
constexpr Allowed above(double least) { return Allowed::from(least, false); }
constexpr Allowed at_most(double most) { return Allowed().at_most(most); }
constexpr Allowed below(double most) { return Allowed().below(most); }
constexpr Allowed between(double least, double most) { return at_least(least).at_most(most); }
constexpr Allowed finite() { return at_least(-std::numeric_limits<double>::infinity()); }
/// For a string or a list of strings: each must be one of `names`, which must outlive the struct's users.
constexpr Allowed any_of(std::span<const std::string_view> names) { return Allowed::of(names); }
/// For a string or a list, which must not be empty.
constexpr Allowed not_empty() { return Allowed::not_empty(); }

/// The field takes words without a flag. At least one is required, unless the field is optional or a list
/// that may be empty.
constexpr Spelling positional() { return Spelling::positional; }
/// For a list: each flag takes one word as it is, commas included.
constexpr Spelling repeated() { return Spelling::repeated; }

}  // namespace allowed

/// A field's description, its allowed values, the values that a search tries, and its form on a command line.
struct FieldDoc {
  std::string_view text;
  Allowed allowed = {};
  Searched searched = {};
  Spelling spelling = Spelling::flag;

  constexpr FieldDoc(const char* words) : text(words) {}
  constexpr FieldDoc(std::string_view words, const Allowed& values, const Searched& tried = {})
      : text(words), allowed(values), searched(tried) {}
  constexpr operator std::string_view() const { return text; }
};

constexpr FieldDoc operator|(const char* text, const Allowed& allowed) { return {text, allowed}; }
constexpr FieldDoc operator|(const char* text, const Searched& searched) { return {text, {}, searched}; }
constexpr FieldDoc operator|(const FieldDoc& doc, const Searched& searched) {
  return {doc.text, doc.allowed, searched};
}
constexpr FieldDoc operator|(FieldDoc doc, Spelling spelling) {
  doc.spelling = spelling;
  return doc;
}

namespace detail {

void refuse_number(std::string_view name, const Allowed& allowed, std::string value, bool is_real,
                   bool is_optional, std::vector<std::string>& faults);
void check_name(std::string_view name, const Allowed& allowed, std::string_view value, bool is_item,
                std::vector<std::string>& faults);
void refuse_empty(std::string_view name, bool is_optional, std::vector<std::string>& faults);
std::string spell_number(double number);

/// Adds "name is value: must be ..." to `faults` if `value` isn't allowed.
template <class T>
void check_field(std::string_view name, const Allowed& allowed, const T& value,
                 std::vector<std::string>& faults, bool is_optional = false) {
  if constexpr (requires {
                  value.has_value();
                  *value;
                }) {
    if (value) check_field(name, allowed, *value, faults, true);
  } else if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    if (!allowed.allows(static_cast<double>(value)))
      refuse_number(name, allowed, std::to_string(value), false, is_optional, faults);
  } else if constexpr (std::floating_point<T>) {
    if (!allowed.allows(value)) refuse_number(name, allowed, spell_number(value), true, is_optional, faults);
  } else if constexpr (requires {
                         value.empty();
                         value.begin();
                       }) {
    if (allowed.is_not_empty() && value.empty()) refuse_empty(name, is_optional, faults);
    if constexpr (std::convertible_to<T, std::string_view>) {
      check_name(name, allowed, value, false, faults);
    } else if constexpr (requires {
                           { *value.begin() } -> std::convertible_to<std::string_view>;
                         }) {
      for (const std::string_view item : value) check_name(name, allowed, item, true, faults);
    }
  }
}

}  // namespace detail
}  // namespace etude::inline v0
