#include "etude/metrics/running_mean.hpp"

#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/metrics/metrics.hpp"

namespace etude::inline v0 {

void RunningMean::add(double value, double weight, std::int64_t place) {
  read();
  take(value, weight, place);
}

void RunningMean::add(const at::Tensor& value, double weight, std::int64_t place) {
  if (!value.defined() || value.numel() != 1)
    throw DataError(fmt::format("a logged value must have exactly one element, not {}", describe(value)));
  if (value.is_cpu() && pending_.empty() && value.scalar_type() == at::kFloat) {
    take(*value.data_ptr<float>(), weight, place);  // read directly, without running an operator
    return;
  }
  keep(value, weight, place);
}

void RunningMean::add(const at::Tensor& value, const at::Tensor& weight, std::int64_t place) {
  if (!value.defined() || value.numel() != 1)
    throw DataError(fmt::format("a logged value must have exactly one element, not {}", describe(value)));
  keep(value, weight.detach(), place);
}

void RunningMean::keep(const at::Tensor& value, std::variant<double, at::Tensor> weight, std::int64_t place) {
  pending_.push_back({value.detach(), std::move(weight), place});
  if (pending_.size() >= read_after) read();
}

double RunningMean::sum() { return mean() * weight(); }

double RunningMean::weight() {
  read();
  return weight_ + leading_;
}

double RunningMean::mean() {
  read();
  return detail::without_sign_of_nan(sum_ / weight_);
}

std::int64_t RunningMean::non_finite() {
  read();
  return non_finite_;
}

std::optional<std::int64_t> RunningMean::first_non_finite() {
  read();
  return first_non_finite_;
}

const std::vector<std::int64_t>& RunningMean::non_finite_places() {
  read();
  return non_finite_places_;
}

RunningMeanState RunningMean::state() {
  read();
  return {sum_, weight_, leading_, non_finite_, first_non_finite_};
}

void RunningMean::load_state(const RunningMeanState& state) {
  reset();
  sum_ = state.sum;
  weight_ = state.weight;
  leading_ = state.leading;
  non_finite_ = state.filtered;
  first_non_finite_ = state.first_filtered;
}

void RunningMean::take(double value, double weight, std::int64_t place) {
  if (weight == 0) return;
  const bool is_finite = std::isfinite(value);
  if (!is_finite) {
    detail::count_up(non_finite_);
    if (non_finite_ == 1) first_non_finite_ = place;
    if (non_finite_places_.empty() || non_finite_places_.back() != place) non_finite_places_.push_back(place);
  }
  if (filter_ && !is_finite) {
    if (weight_ == 0) {
      leading_ += weight;  // no finite value came before, so it will count as the later mean
      return;
    }
    value = sum_ / weight_;
  }
  sum_ += value * weight;
  weight_ += weight;
}

void RunningMean::read() {
  if (pending_.empty()) return;
  std::vector<at::Tensor> flat;
  flat.reserve(pending_.size());
  // All values are copied from the device together, which waits only once.
  auto device = at::Device(at::kCPU);
  const auto look_at = [&](const at::Tensor& element) {
    if (!element.is_cpu()) device = element.device();
  };
  for (const auto& each : pending_) {
    look_at(each.value);
    if (const auto* weight = std::get_if<at::Tensor>(&each.weight)) look_at(*weight);
  }
  const auto add = [&](const at::Tensor& element) {
    flat.push_back(element.reshape({1}).to(device, at::kDouble));
  };
  for (const auto& each : pending_) {
    add(each.value);
    if (const auto* weight = std::get_if<at::Tensor>(&each.weight)) add(*weight);
  }
  const auto values = at::cat(flat).cpu();
  const auto* next = values.data_ptr<double>();
  for (const auto& each : std::exchange(pending_, {})) {
    const double value = *next++;
    const auto* known = std::get_if<double>(&each.weight);
    take(value, known ? *known : *next++, each.place);
  }
}

}  // namespace etude::inline v0
