#include "etude/metrics/streaming.hpp"

#include <fmt/format.h>

#include "etude/base/error.hpp"

namespace etude::inline v0::metrics::detail {

void take_in(Metrics& all, const Metrics& more) {
  for (const auto& [name, value] : more) {
    if (all.contains(name))
      throw ArgumentError(fmt::format("two metrics are named '{}': must be given different names", name));
    all[name] = value;
  }
}

std::vector<MetricState> state_of(const std::vector<MetricState>& state, std::size_t index) {
  const auto place = std::to_string(index) + ".";
  std::vector<MetricState> result;
  for (const auto& part : state)
    if (part.name.starts_with(place))
      result.push_back({part.name.substr(place.size()), part.value, part.merging});
  return result;
}

}  // namespace etude::inline v0::metrics::detail
