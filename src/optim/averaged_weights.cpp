#include "etude/optim/averaged_weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/libtorch/foreach.hpp"
#include "etude/optim/flat_layout.hpp"
#include "etude/optim/flat_parameters.hpp"
#include "etude/optim/optimizer.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// Averages 16-bit weights in float32: in 16 bits the average would stall, since the increments are below its
/// precision.
torch::ScalarType type_of_average(const torch::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return at::isFloatingType(type) && tensor.element_size() < 4 ? torch::kFloat : type;
}

bool is_averaged(const torch::Tensor& tensor) { return tensor.is_floating_point() || tensor.is_complex(); }

}  // namespace

}  // namespace detail

AveragedWeights::AveragedWeights(Model model, bool use_buffers) : model_(std::move(model)) {
  const torch::NoGradGuard no_grad;
  auto tensors = model_.named_parameters();
  if (use_buffers) std::ranges::move(model_.named_buffers(), std::back_inserter(tensors));
  for (auto& [name, own] : tensors) {
    auto average = own.detach().to(detail::type_of_average(own), /*non_blocking=*/false, /*copy=*/true);
    parts_.push_back({std::move(name), std::move(own), std::move(average)});
  }
}

void AveragedWeights::update(Optimizer& optimizer, double weight) {
  const torch::NoGradGuard no_grad;
  auto& flat = optimizer.flat_parameters();
  flat.mend();
  if (flat.layout() != layout_) lay_out(flat);
  for (std::size_t i = 0; i < flat_.size(); ++i)
    flat_[i].lerp_(flat.values()[i].to(flat_[i].scalar_type()), weight);
  std::vector<torch::Tensor> ends;
  for (const auto& part : parts_) {
    if (part.is_flat) continue;
    if (detail::is_averaged(part.own))
      ends.push_back(part.own.detach().to(part.average.options()));
    else
      torch::Tensor(part.average).copy_(part.own);
  }
  libtorch::foreach_lerp_(single_, ends, weight);
}

void AveragedWeights::lay_out(const FlatParameters& parameters) {
  const auto& layout = *parameters.layout();
  std::vector<torch::Tensor> flat = layout.allocate();
  for (auto& buffer : flat) buffer = buffer.to(detail::type_of_average(buffer));
  single_.clear();
  for (auto& part : parts_) {
    const auto slot = layout.by_name.find(part.name);
    part.is_flat = slot != layout.by_name.end() && parameters.parameter(slot->second).is_same(part.own);
    if (part.is_flat) {
      const auto view = layout.slots[slot->second].view(flat[layout.slots[slot->second].buffer]);
      view.copy_(part.average);
      part.average = view;
    } else if (detail::is_averaged(part.own)) {
      single_.push_back(part.average);
    }
  }
  flat_ = std::move(flat);
  layout_ = parameters.layout();
}

std::vector<NamedTensor> AveragedWeights::state() const {
  std::vector<NamedTensor> result;
  for (const auto& part : parts_) result.emplace_back(part.name, part.average);
  return result;
}

void AveragedWeights::load(const std::vector<NamedTensor>& state) {
  const std::map<std::string, torch::Tensor> saved(state.begin(), state.end());
  std::vector<std::string> faults;
  for (const auto& part : parts_) {
    const auto found = saved.find(part.name);
    if (found == saved.end())
      faults.push_back(fmt::format("{} is missing", part.name));
    else if (found->second.sizes() != part.average.sizes())
      faults.push_back(
          fmt::format("{} must be {}, not {}", part.name, describe(part.average), describe(found->second)));
  }
  if (!faults.empty())
    throw CheckpointError(
        fmt::format("these averages don't fit {}:\n{}", model_.name(), fmt::join(faults, "\n")));
  const torch::NoGradGuard no_grad;
  for (auto& part : parts_) part.average.copy_(saved.at(part.name));
}

std::vector<NamedTensor> AveragedWeights::model_state() const {
  std::unordered_map<const void*, const torch::Tensor*> averages;
  for (const auto& part : parts_) averages.emplace(part.own.unsafeGetTensorImpl(), &part.average);
  auto state = model_.state_dict();
  for (auto& [name, tensor] : state)
    if (const auto found = averages.find(tensor.unsafeGetTensorImpl()); found != averages.end())
      tensor = found->second->to(tensor.scalar_type());
  return state;
}

void AveragedWeights::copy_to_model() const {
  const torch::NoGradGuard no_grad;
  for (const auto& part : parts_) torch::Tensor(part.own).copy_(part.average);
}

AveragedWeights::Swap::Swap(const AveragedWeights& weights) {
  for (const auto& part : weights.parts_) own_.add(part.own);
  weights.copy_to_model();
}

AveragedWeights::Swap::~Swap() { own_.restore(); }

}  // namespace etude::inline v0
