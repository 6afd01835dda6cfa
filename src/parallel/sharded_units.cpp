#include "etude/parallel/sharded_units.hpp"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

std::unordered_map<std::string, std::size_t> unit_of_parameters(const Model& model) {
  const auto all = units(model);
  const auto unit_of = [&](const std::string& name) {
    for (std::size_t i = 0; i < all.size(); ++i)
      if (name.starts_with(all[i].name + ".")) return i;
    return all.size();
  };
  std::unordered_map<std::string, std::size_t> result;
  std::unordered_map<const void*, std::pair<std::string, std::size_t>> seen;
  for (const auto& item : model.module()->named_parameters()) {
    const auto& name = item.key();
    const auto unit = unit_of(name);
    const auto [first, is_new] = seen.try_emplace(item.value().unsafeGetTensorImpl(), name, unit);
    if (is_new && unit < all.size()) result.emplace(name, unit);
    if (is_new || first->second.second == unit) continue;
    throw ArgumentError(
        fmt::format("parameters '{}' and '{}' are one tensor: with ShardedDataParallel<3>, a parameter must "
                    "belong to one unit, or to none",
                    first->second.first, name));
  }
  return result;
}

ShardedUnits::ShardedUnits(const Model& model, std::vector<FlatParameters*> parameters, bool recomputes)
    : parameters_(std::move(parameters)), guard_(run_units(model, *this)) {
  if (recomputes) recomputation_.emplace(model);
  for (auto* flat : parameters_) flat->release_units();
}

ShardedUnits::~ShardedUnits() = default;

torch::Tensor ShardedUnits::run(std::size_t unit, const Forward& forward, const Tensors& inputs) {
  make_hooks();
  hold(unit);
  auto output = recomputation_ ? recomputation_->run(unit, forward, inputs) : forward(inputs);
  release(unit);
  // Frozen units are gathered too, since they need their weights to pass gradients on.
  if (at::GradMode::is_enabled() && output.requires_grad())
    output.register_hook([this, unit](const torch::Tensor&) {
      if (!hold(unit)) return;
      if (missing_.empty())
        torch::autograd::Engine::get_default_engine().queue_callback([this] { release_missing(); });
      missing_[unit] = trainable_.contains(unit) ? trainable_.at(unit) : 0;
    });
  return output;
}

bool ShardedUnits::hold(std::size_t unit) {
  bool was_away = false;
  for (auto* flat : parameters_) was_away |= flat->hold_unit(unit);
  return was_away;
}

void ShardedUnits::release(std::size_t unit) {
  if (whole_ > 0) return;
  for (auto* flat : parameters_) flat->release_unit(unit);
}

void ShardedUnits::arrived(std::size_t unit) {
  const auto left = missing_.find(unit);
  if (left == missing_.end() || --left->second > 0) return;  // other gradients still need the values
  missing_.erase(left);
  release(unit);
}

void ShardedUnits::release_missing() {
  for (const auto& [unit, count] : std::exchange(missing_, {})) release(unit);
}

void ShardedUnits::make_hooks() {
  const auto unit_of = [](const FlatLayout& layout, std::size_t slot) {
    return layout.buffers[layout.slots[slot].buffer].unit;
  };
  bool is_outdated = !std::ranges::equal(layouts_, parameters_, {}, {}, &FlatParameters::layout);
  auto hook = hooks_.begin();  // one per parameter in a unit
  for (std::size_t i = 0; !is_outdated && i < layouts_.size(); ++i)
    for (std::size_t slot = 0; !is_outdated && slot < layouts_[i]->slots.size(); ++slot)
      if (unit_of(*layouts_[i], slot) != FlatLayout::no_unit)
        is_outdated = hook++->exists() != parameters_[i]->parameter(slot).requires_grad();
  if (!is_outdated) return;
  hooks_.clear();
  layouts_.clear();
  trainable_.clear();
  for (const auto* flat : parameters_) {
    const auto& layout = *layouts_.emplace_back(flat->layout());
    for (std::size_t slot = 0; slot < layout.slots.size(); ++slot) {
      const auto unit = unit_of(layout, slot);
      if (unit == FlatLayout::no_unit) continue;
      if (flat->parameter(slot).requires_grad()) ++trainable_[unit];
      hooks_.emplace_back(flat->parameter(slot), [this, unit] { arrived(unit); });
    }
  }
}

void ShardedUnits::gather() {
  for (auto* flat : parameters_) flat->hold_units();
}

ShardedUnits::Whole::Whole(ShardedUnits* units) : units_(units) {
  if (units_ && units_->whole_++ == 0) units_->gather();
}

ShardedUnits::Whole::~Whole() {
  if (!units_ || --units_->whole_ > 0) return;
  for (auto* flat : units_->parameters_) flat->release_units();
}

}  // namespace etude::inline v0
