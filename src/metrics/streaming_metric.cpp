#include "etude/metrics/streaming_metric.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/metrics/class_examples.hpp"

namespace etude::inline v0::metrics {

std::vector<MetricState> Accumulator::state() const {
  std::vector<MetricState> result;
  for (const auto& entry : entries_) result.push_back({entry.name, joined(entry), entry.merging});
  return result;
}

void Accumulator::load_state(const std::vector<MetricState>& state) {
  for (const auto& part : state)
    if (!part.value.defined())
      throw DataError(fmt::format("the state '{}' is an undefined tensor", part.name));
  entries_.clear();
  for (const auto& part : state) entries_.push_back({part.name, part.merging, {part.value}});
}

at::Tensor Accumulator::value(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  return found == entries_.end() ? at::Tensor() : joined(*found);
}

void Accumulator::merge_state(const Accumulator& other) {
  for (const auto& entry : std::vector<Entry>(other.entries_))
    for (const auto& part : entry.parts) add(entry.name, entry.merging, part);
}

void Accumulator::add(std::string_view name, Merging merging, const at::Tensor& value) {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  if (found == entries_.end()) {
    entries_.push_back({std::string(name), merging, {value}});
    return;
  }
  auto& first = found->parts.front();
  const auto sizes = merging == Merging::sum ? 0U : 1U;
  if (first.dim() != value.dim() || first.sizes().slice(sizes) != value.sizes().slice(sizes))
    throw DataError(fmt::format("the state '{}' is {} but the added value is {}: must have the same shape",
                                name, describe(first), describe(value)));
  const auto here = value.to(first.device());
  if (merging == Merging::sum)
    first = first + here;
  else
    found->parts.push_back(here);
}

at::Tensor Accumulator::joined(const Entry& entry) {
  return entry.parts.size() == 1 ? entry.parts.front() : torch::cat(entry.parts);
}

void MeanAccumulator::add_to_mean(std::vector<at::Tensor> total_counted_outside) {
  for (auto& each : total_counted_outside) each = each.to(total_counted_outside.front().scalar_type());
  sum("total_counted_outside", torch::stack(total_counted_outside));
}

double MeanAccumulator::mean(std::string_view metric) const {
  const auto sums = value("total_counted_outside");
  if (!sums.defined()) return std::numeric_limits<double>::quiet_NaN();
  const auto all = sums.cpu();
  if (all.size(0) > 2) refuse_outside(metric, all[2].item<std::int64_t>());
  return all[0].item<double>() / all[1].item<double>();
}

}  // namespace etude::inline v0::metrics
