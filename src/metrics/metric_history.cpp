#include "etude/metrics/metric_history.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

std::vector<std::string> InMemoryRunHistory::get_metric_names() const {
  std::vector<std::string> names;
  for (const auto& metric : kept_.metrics) names.push_back(metric.name);
  return names;
}

std::vector<double> InMemoryRunHistory::get_metric_values(std::string_view name) const {
  return kept_.metrics[known_index_of(name)].values;
}

double InMemoryRunHistory::get_latest_metric(std::string_view name) const {
  return kept_.metrics[known_index_of(name)].values.back();
}

void InMemoryRunHistory::update_metric(std::string_view name, double value) {
  auto full_name = kept_.prefix + std::string(name);
  const auto i = index_of(full_name);
  if (i == kept_.metrics.size()) {
    detail::check_metric_name(full_name);
    kept_.metrics.push_back({std::move(full_name), {}});
  }
  kept_.metrics[i].values.push_back(value);
}

void InMemoryRunHistory::delete_metric(std::string_view name) {
  kept_.metrics.erase(kept_.metrics.begin() + static_cast<std::ptrdiff_t>(known_index_of(name)));
}

void InMemoryRunHistory::reset() {
  kept_.metrics.clear();
  kept_.current_epoch = 1;
}

// The state is a list, because a checkpoint sorts the members of objects by name.
nlohmann::ordered_json InMemoryRunHistory::state() const {
  auto state = to_json_value(kept_);
  for (auto& metric : state["metrics"]) {
    const auto name = metric["name"].get<std::string>();
    metric = {{name, std::move(metric["values"])}};
  }
  return state;
}

void InMemoryRunHistory::load_state(const nlohmann::ordered_json& saved) {
  auto named = saved;
  if (named.contains("metrics") && named["metrics"].is_array())
    for (auto& metric : named["metrics"])
      if (metric.is_object() && metric.size() == 1)
        metric = {{"name", metric.begin().key()}, {"values", metric.begin().value()}};
  kept_ = from_json_value<Kept>(named);
}

std::size_t InMemoryRunHistory::index_of(std::string_view name) const {
  const auto found = std::ranges::find(kept_.metrics, name, &RecordedMetric::name);
  return static_cast<std::size_t>(found - kept_.metrics.begin());
}

std::size_t InMemoryRunHistory::known_index_of(std::string_view name) const {
  const auto i = index_of(name);
  if (i < kept_.metrics.size()) return i;
  const auto names = get_metric_names();
  throw MetricError(fmt::format("no values have been recorded for the metric '{}'; known: {}", name,
                                names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

}  // namespace etude::inline v0
