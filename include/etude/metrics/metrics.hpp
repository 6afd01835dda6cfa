#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/error.hpp"
#include "etude/reflect/nearest.hpp"

namespace etude {

/// Named numbers in the order in which they were first given: what is logged, and what an evaluation returns.
/// Lookup is linear, which for the dozen entries it is made for is faster than a tree.
class Metrics {
 public:
  using key_type = std::string;
  using mapped_type = double;
  using value_type = std::pair<std::string, double>;
  using const_iterator = std::vector<value_type>::const_iterator;
  using iterator = const_iterator;
  using size_type = std::size_t;

  Metrics() = default;
  /// `{{"loss", 0.5}, {"epoch", 1}}`; of two with one name the later counts.
  Metrics(std::initializer_list<value_type> entries) {
    for (const auto& [name, value] : entries) (*this)[name] = value;
  }

  /// The value of `name`, added as 0 at the end where it is new.
  double& operator[](std::string_view name) {
    if (auto* entry = entry_of(name)) return entry->second;
    return entries_.emplace_back(name, 0.0).second;
  }

  /// The value of `name`. Throws MetricError that lists the known names.
  const double& at(std::string_view name) const {
    if (const auto it = find(name); it != end()) return it->second;
    throw MetricError(missing(name));
  }
  double& at(std::string_view name) {
    if (auto* entry = entry_of(name)) return entry->second;
    throw MetricError(missing(name));
  }

  const_iterator find(std::string_view name) const {
    return std::find_if(begin(), end(), [&](const value_type& entry) { return entry.first == name; });
  }
  bool contains(std::string_view name) const { return find(name) != end(); }

  /// Whether there was such an entry.
  bool erase(std::string_view name) {
    const auto it = find(name);
    if (it == end()) return false;
    entries_.erase(it);
    return true;
  }

  /// Takes over every entry of `other`; of two with one name the other's counts.
  void update(const Metrics& other) {
    for (const auto& [name, value] : other) (*this)[name] = value;
  }

  void clear() { entries_.clear(); }
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }

  /// The same names with the same values, in any order.
  friend bool operator==(const Metrics& a, const Metrics& b) {
    return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const value_type& entry) {
             const auto it = b.find(entry.first);
             return it != b.end() && it->second == entry.second;
           });
  }

 private:
  value_type* entry_of(std::string_view name) {
    const auto it = find(name);
    return it == end() ? nullptr : &entries_[static_cast<std::size_t>(it - begin())];
  }

  std::string missing(std::string_view name) const {
    std::vector<std::string_view> names;
    for (const auto& entry : entries_) names.push_back(entry.first);
    if (names.empty()) return fmt::format("there is no metric '{}': there are none at all", name);
    return fmt::format("there is no metric '{}': must be one of {}{}", name, fmt::join(names, ", "),
                       did_you_mean(name, names));
  }

  std::vector<value_type> entries_;
};

}  // namespace etude

/// `{loss: 0.1234, learning_rate: 5e-05, epoch: 1.00}`: four significant digits, counts in full, "epoch" with
/// two decimals. A format given by the caller (`{:.6f}`) is applied to every value instead.
template <>
struct fmt::formatter<etude::Metrics> : fmt::formatter<double> {
  constexpr auto parse(format_parse_context& context) {
    plain_ = context.begin() == context.end() || *context.begin() == '}';
    return fmt::formatter<double>::parse(context);
  }

  template <class Context>
  auto format(const etude::Metrics& metrics, Context& context) const {
    auto out = fmt::format_to(context.out(), "{{");
    const char* separator = "";
    for (const auto& [name, value] : metrics) {
      out = fmt::format_to(out, "{}{}: ", std::exchange(separator, ", "), name);
      context.advance_to(out);
      out = plain_ ? write_plainly(out, name, value) : fmt::formatter<double>::format(value, context);
    }
    return fmt::format_to(out, "}}");
  }

 private:
  template <class Out>
  static Out write_plainly(Out out, std::string_view name, double value) {
    if (name == "epoch") return fmt::format_to(out, "{:.2f}", value);
    if (std::trunc(value) == value && std::abs(value) < 1e15) return fmt::format_to(out, "{:.0f}", value);
    if (std::abs(value) < 1000) return fmt::format_to(out, "{:.4g}", value);
    return fmt::format_to(out, "{:.1f}", value);
  }

  bool plain_ = true;
};
