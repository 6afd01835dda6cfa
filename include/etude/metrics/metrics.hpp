#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace etude::inline v0 {
namespace detail {

/// Removes the sign of a NaN, which would be printed but means nothing.
template <std::floating_point T>
constexpr T without_sign_of_nan(T value) {
  return value == value ? value : std::numeric_limits<T>::quiet_NaN();
}

void check_metric_name(std::string_view name);

}  // namespace detail

/// Named numbers in insertion order: logs and results of evaluations. Lookup is linear, which for the usual
/// dozen entries is faster than a tree.
class Metrics {
 public:
  using key_type = std::string;
  using mapped_type = double;
  using value_type = std::pair<std::string, double>;
  using const_iterator = std::vector<value_type>::const_iterator;
  using iterator = const_iterator;
  using size_type = std::size_t;

  Metrics() = default;
  /// `{{"loss", 0.5}, {"epoch", 1}}`; if a name occurs twice, the last value wins.
  Metrics(std::initializer_list<value_type> entries);

  /// The value of `name`; a new name is appended with value 0. Throws ArgumentError for a new name that isn't
  /// UTF-8, since it couldn't be saved in a checkpoint.
  double& operator[](std::string_view name);

  /// The value of `name`. Throws MetricError that lists the known names.
  const double& at(std::string_view name) const;
  double& at(std::string_view name);

  const_iterator find(std::string_view name) const {
    return std::find_if(begin(), end(), [&](const value_type& entry) { return entry.first == name; });
  }
  bool contains(std::string_view name) const { return find(name) != end(); }

  /// Returns whether the entry existed.
  bool erase(std::string_view name);

  /// Adds all entries of `other`, overwriting existing ones.
  void update(const Metrics& other);

  void clear() { entries_.clear(); }
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  /// Removes the sign of every NaN.
  void drop_signs_of_nan();

  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }

  /// Compares names and values, in any order.
  friend bool operator==(const Metrics& a, const Metrics& b) {
    return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const value_type& entry) {
             const auto it = b.find(entry.first);
             return it != b.end() && it->second == entry.second;
           });
  }

 private:
  value_type* entry_of(std::string_view name);

  std::string missing(std::string_view name) const;

  std::vector<value_type> entries_;
};

}  // namespace etude::inline v0

/// `{loss: 0.1234, learning_rate: 5e-05, epoch: 1.00}`: four significant digits, counts in full, values from
/// 1000 to a million without decimals, "epoch" with two. A format given by the caller (`{:.6f}`) applies to
/// every value instead.
template <>
struct fmt::formatter<etude::Metrics> : fmt::formatter<double> {
  constexpr auto parse(format_parse_context& context) {
    plain_ = context.begin() == context.end() || *context.begin() == '}';
    return fmt::formatter<double>::parse(context);
  }

  fmt::format_context::iterator format(const etude::Metrics& metrics, fmt::format_context& context) const;

 private:
  bool plain_ = true;
};
