#include "etude/metrics/metrics.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "etude/base/error.hpp"
#include "etude/base/utf8.hpp"
#include "etude/reflect/nearest.hpp"

namespace etude::inline v0 {

void detail::check_metric_name(std::string_view name) {
  if (!is_utf8(name))
    throw ArgumentError(fmt::format("the name of a metric is {}: must be UTF-8", quoted_utf8(name)));
}

Metrics::Metrics(std::initializer_list<value_type> entries) {
  for (const auto& [name, value] : entries) (*this)[name] = value;
}

const double& Metrics::at(std::string_view name) const {
  if (const auto it = find(name); it != end()) return it->second;
  throw MetricError(missing(name));
}

double& Metrics::at(std::string_view name) {
  if (auto* entry = entry_of(name)) return entry->second;
  throw MetricError(missing(name));
}

double& Metrics::operator[](std::string_view name) {
  if (auto* entry = entry_of(name)) return entry->second;
  detail::check_metric_name(name);
  return entries_.emplace_back(name, 0.0).second;
}

Metrics::value_type* Metrics::entry_of(std::string_view name) {
  const auto it = find(name);
  return it == end() ? nullptr : &entries_[static_cast<std::size_t>(it - begin())];
}

bool Metrics::erase(std::string_view name) {
  const auto it = find(name);
  if (it == end()) return false;
  entries_.erase(it);
  return true;
}

void Metrics::update(const Metrics& other) {
  for (const auto& [name, value] : other) (*this)[name] = value;
}

void Metrics::drop_signs_of_nan() {
  for (auto& [name, value] : entries_) value = detail::without_sign_of_nan(value);
}

std::string Metrics::missing(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const auto& entry : entries_) names.push_back(entry.first);
  if (names.empty()) return fmt::format("there is no metric '{}': there are no metrics at all", name);
  return fmt::format("there is no metric '{}': must be one of {}{}", name, fmt::join(names, ", "),
                     did_you_mean(name, names));
}

}  // namespace etude::inline v0

fmt::format_context::iterator fmt::formatter<etude::Metrics>::format(const etude::Metrics& metrics,
                                                                     fmt::format_context& context) const {
  const auto write_plainly = [](auto out, std::string_view name, double value) {
    if (name == "epoch") return fmt::format_to(out, "{:.2f}", value);
    const bool is_count = std::trunc(value) == value && std::abs(value) < 1e15;
    if (is_count || (std::abs(value) >= 1000 && std::abs(value) < 1e6))
      return fmt::format_to(out, "{:.0f}", value);
    return fmt::format_to(out, "{:.4g}", value);
  };
  auto out = fmt::format_to(context.out(), "{{");
  const char* separator = "";
  for (const auto& [name, given] : metrics) {
    const auto value = etude::detail::without_sign_of_nan(given);
    out = fmt::format_to(out, "{}{}: ", std::exchange(separator, ", "), name);
    context.advance_to(out);
    out = plain_ ? write_plainly(out, name, value) : fmt::formatter<double>::format(value, context);
  }
  return fmt::format_to(out, "}}");
}
