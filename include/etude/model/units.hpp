#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "etude/data/tensors.hpp"
#include "etude/model/forward.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

/// A module within a model, and its name there.
struct NamedModule {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
};

/// Customizes how the units of a model run, for example with parameters that are elsewhere between uses.
class UnitRunner {
 public:
  /// The unit as a function of its inputs, which may be stored and called again.
  using Forward = std::function<torch::Tensor(const Tensors& inputs)>;

  UnitRunner() = default;
  UnitRunner(const UnitRunner&) = delete;
  UnitRunner& operator=(const UnitRunner&) = delete;
  virtual ~UnitRunner() = default;
  /// Called when the model calls a unit. `unit` is its index in `units(model)`.
  virtual torch::Tensor run(std::size_t unit, const Forward& forward, const Tensors& inputs) = 0;
};

namespace detail {

class AnyUnits {
 public:
  virtual ~AnyUnits() = default;
  virtual std::vector<std::shared_ptr<torch::nn::Module>> modules() const = 0;
  virtual UnitRunner* runner() const = 0;
  /// `unit` has the index of each module in `units(model)`.
  virtual void set_runner(UnitRunner* runner, const std::vector<std::size_t>& unit) = 0;
};

}  // namespace detail

/// An element of `Units`. It is called with tensors, like the holder of its module, and returns a tensor.
template <class M>
class Unit {
 public:
  explicit Unit(std::shared_ptr<M> module) : module_(std::move(module)) {}

  template <class... Inputs>
  torch::Tensor operator()(Inputs&&... inputs) const {
    static_assert((std::convertible_to<Inputs&&, torch::Tensor> && ...),
                  "etude: a unit takes torch::Tensors, so that it can be run again");
    static_assert(std::same_as<decltype(module_->forward(std::forward<Inputs>(inputs)...)), torch::Tensor>,
                  "etude: the forward of a unit returns a torch::Tensor");
    if (!runner_) [[likely]]
      return module_->forward(std::forward<Inputs>(inputs)...);
    const auto forward = [module = module_](const Tensors& all) -> torch::Tensor {
      return detail::forward_first(*module, all, std::index_sequence_for<Inputs...>());
    };
    return runner_->run(unit_, forward, Tensors(std::vector<torch::Tensor>{std::forward<Inputs>(inputs)...}));
  }

  M* operator->() const { return module_.get(); }
  M& operator*() const { return *module_; }
  const std::shared_ptr<M>& ptr() const { return module_; }

 private:
  template <class>
  friend class UnitsImpl;

  std::shared_ptr<M> module_;
  UnitRunner* runner_ = nullptr;
  std::size_t unit_ = 0;
};

/// The module that `Units` holds.
template <class M>
class UnitsImpl : public torch::nn::Cloneable<UnitsImpl<M>>, public detail::AnyUnits {
 public:
  void push_back(std::shared_ptr<M> module) {
    this->register_module(std::to_string(units_.size()), module);
    units_.emplace_back(std::move(module));
  }
  void push_back(const torch::nn::ModuleHolder<M>& module) { push_back(module.ptr()); }

  std::size_t size() const { return units_.size(); }
  const Unit<M>& operator[](std::size_t index) const { return units_.at(index); }
  auto begin() const { return units_.begin(); }
  auto end() const { return units_.end(); }

  void reset() override {}
  void pretty_print(std::ostream& stream) const override { stream << "etude::Units"; }
  std::shared_ptr<torch::nn::Module> clone(
      const torch::optional<torch::Device>& device = torch::nullopt) const override {
    auto copy = std::make_shared<UnitsImpl>();
    for (const auto& unit : units_)
      copy->push_back(std::dynamic_pointer_cast<M>(std::as_const(*unit).clone(device)));
    return copy;
  }

  std::vector<std::shared_ptr<torch::nn::Module>> modules() const override {
    std::vector<std::shared_ptr<torch::nn::Module>> result;
    for (const auto& unit : units_) result.push_back(unit.ptr());
    return result;
  }
  UnitRunner* runner() const override { return units_.empty() ? nullptr : units_.front().runner_; }
  void set_runner(UnitRunner* runner, const std::vector<std::size_t>& unit) override {
    for (std::size_t i = 0; i < units_.size(); ++i) {
      units_[i].runner_ = runner;
      units_[i].unit_ = unit[i];
    }
  }

 private:
  std::vector<Unit<M>> units_;
};

/// Marks the units of a model: layers of one class that run one after another. Each unit can be recomputed,
/// keep its parameters elsewhere between uses, be frozen, or have its own learning rate. It is like a
/// torch::nn::ModuleList whose elements can be called without a cast:
///
///     etude::Units<Block> blocks{register_module("blocks", etude::Units<Block>())};
///     ...
///     blocks->push_back(Block(64));
///     ...
///     for (const auto& block : *blocks) x = block(x, mask);
///
/// Such a call costs only a comparison more than the module's call. A UnitRunner doesn't see calls that
/// bypass it, such as `block->forward(x)`.
template <class M>
class Units : public torch::nn::ModuleHolder<UnitsImpl<typename detail::ModuleOf<M>::Type>> {
 public:
  using Impl = UnitsImpl<typename detail::ModuleOf<M>::Type>;
  using torch::nn::ModuleHolder<Impl>::ModuleHolder;
};

/// The children of a torch::nn::Sequential, or the elements of the `Units` in a model, in the order of
/// registration; a module that occurs twice is listed once. Units within a unit belong to that unit. Throws
/// ArgumentError for a model without units, and for TorchScript.
std::vector<NamedModule> units(const Model& model);

/// Ends `run_units` when it is destroyed.
using UnitsGuard = ModelGuard;

/// True if a UnitRunner runs the units of a model. Throws as `units` does.
bool are_units_run(const Model& model);

/// Lets `runner` run the units of a model until the guard is destroyed, even if the module is called without
/// its Model. Until then, the children of a Sequential take a single tensor, and `Sequential::ptr` and `at`
/// don't return them. Throws as `units` does, and Error if the units already have a runner.
[[nodiscard]] UnitsGuard run_units(const Model& model, UnitRunner& runner);

}  // namespace etude::inline v0
