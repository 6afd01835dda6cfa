#include "etude/model/recomputation.hpp"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/libtorch/generators.hpp"
#include "etude/libtorch/gradient_hook.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

using TensorList = std::vector<torch::Tensor>;

TensorList copies(const TensorList& tensors) {
  TensorList result;
  for (const auto& tensor : tensors) result.push_back(tensor.detach().clone());
  return result;
}

/// Copies values without telling autograd, which would treat that as a change to tensors that a backward pass
/// needs.
void copy_values(const TensorList& from, const TensorList& to) {
  for (std::size_t i = 0; i < from.size(); ++i) to[i].variable_data().copy_(from[i]);
}

/// Gives tensors other values while it lives.
class ValuesGuard {
 public:
  ValuesGuard(const TensorList& tensors, const TensorList& values)
      : tensors_(tensors), before_(copies(tensors)) {
    copy_values(values, tensors_);
  }
  ValuesGuard(const ValuesGuard&) = delete;
  ValuesGuard& operator=(const ValuesGuard&) = delete;
  ~ValuesGuard() { copy_values(before_, tensors_); }

 private:
  const TensorList& tensors_;
  TensorList before_;
};

/// Turns off gradients, and autocast's cache, since casts made without gradients would otherwise be reused
/// where gradients are needed.
struct ForwardOnly {
  ForwardOnly() { at::autocast::set_autocast_cache_enabled(false); }
  ForwardOnly(const ForwardOnly&) = delete;
  ForwardOnly& operator=(const ForwardOnly&) = delete;
  ~ForwardOnly() { at::autocast::set_autocast_cache_enabled(was_enabled); }

  torch::NoGradGuard no_grad;
  bool was_enabled = at::autocast::is_autocast_cache_enabled();
};

/// The backward pass of one call of a unit, with everything needed to repeat the call. Its edges lead to the
/// inputs, then to the parameters.
class RecomputedCall : public torch::autograd::Node {
 public:
  RecomputedCall(const UnitRunner::Forward& forward, const torch::nn::Module& module,
                 const TensorList& inputs)
      : forward_(forward),
        parameters_(module.parameters()),
        buffers_(module.buffers()),
        buffers_before_(copies(buffers_)),
        random_(inputs.front().device()),
        autocast_(autocast_in_force(random_.device().type())) {
    torch::autograd::edge_list edges;
    for (const auto& list : {inputs, parameters_})
      for (const auto& each : list)
        edges.push_back(each.defined() ? torch::autograd::impl::gradient_edge(each)
                                       : torch::autograd::Edge());
    set_next_edges(std::move(edges));
    for (const auto& input : inputs) inputs_.emplace_back(input, /*is_output=*/false);
  }

  bool is_needed() const {
    return std::ranges::any_of(next_edges(), [](const auto& edge) { return edge.is_valid(); });
  }

  /// Restores random numbers and buffers to their state before the call.
  void undo() const {
    random_.restore();
    copy_values(buffers_before_, buffers_);
  }

  std::string name() const override { return "RecomputedUnit"; }
  void release_variables() override {
    const std::lock_guard lock(mutex_);
    inputs_.clear();
    buffers_before_.clear();
    is_released_ = true;
  }

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

 private:
  TensorList leaves();

  UnitRunner::Forward forward_;
  TensorList parameters_, buffers_, buffers_before_;
  DefaultRandomState random_;
  std::optional<torch::ScalarType> autocast_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  bool is_released_ = false;
};

}  // namespace

/// The inputs, detached: leaves of a new graph.
TensorList RecomputedCall::leaves() {
  const std::lock_guard lock(mutex_);
  if (is_released_)
    throw Error(
        "gradient_checkpointing: the backward pass through a unit is over: a second one needs retain_graph");
  TensorList result;
  for (const auto& saved : inputs_) {
    const torch::Tensor input = saved.unpack();
    result.push_back(input.defined() ? input.detach().requires_grad_(input.requires_grad()) : input);
  }
  return result;
}

torch::autograd::variable_list RecomputedCall::apply(torch::autograd::variable_list&& gradients) {
  if (at::GradMode::is_enabled())
    throw Error("gradient_checkpointing: a backward pass through a unit can't create a graph");
  TensorList all = leaves();
  TensorList result(all.size() + parameters_.size());
  if (!gradients[0].defined()) return result;
  const RandomStateGuard random_after(random_.device());
  const ValuesGuard values(buffers_, buffers_before_);
  random_.restore();
  const torch::AutoGradMode with_gradients(true);
  torch::Tensor output;
  {
    const AutocastGuard precision(random_.device().type(), autocast_);
    output = forward_(Tensors(all));
  }
  all.insert(all.end(), parameters_.begin(), parameters_.end());
  TensorList needed;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!task_should_compute_output(i)) continue;
    needed.push_back(all[i]);
    places.push_back(i);
  }
  const auto found =
      torch::autograd::grad({output}, needed, {std::move(gradients[0])}, /*retain_graph=*/false,
                            /*create_graph=*/false, /*allow_unused=*/true);
  for (std::size_t i = 0; i < found.size(); ++i) result[places[i]] = found[i];
  return result;
}

}  // namespace detail

Recomputation::Recomputation(const Model& model) {
  for (const auto& unit : units(model)) units_.push_back(unit.module);
}

torch::Tensor Recomputation::run(std::size_t unit, const Forward& forward, const Tensors& inputs) {
  const detail::TensorList given(inputs.begin(), inputs.end());
  if (!at::GradMode::is_enabled() || given.empty() || !given.front().defined()) return forward(inputs);
  const auto& module = *units_.at(unit);
  const auto call = libtorch::make_node<detail::RecomputedCall>(forward, module, given);
  if (!call->is_needed()) return forward(inputs);

  const auto versions = [&] {
    std::vector<std::int64_t> result;
    for (const auto& input : given)
      if (input.defined()) result.push_back(static_cast<std::int64_t>(input._version()));
    return result;
  };
  const auto before = versions();
  torch::Tensor output;
  {
    const detail::ForwardOnly forward_only;
    output = forward(inputs).variable_data();
  }
  if (versions() != before)
    throw Error(fmt::format(
        "gradient_checkpointing is true, and unit {} of the model ({}) changes its input in place: must not, "
        "since the backward pass needs it again",
        unit, module.name()));
  const auto is_source = [&](const torch::Tensor& input) {
    return input.defined() && input.is_alias_of(output);
  };
  if (std::ranges::any_of(given, is_source)) {  // the output is a view, which takes no memory
    call->undo();
    return forward(inputs);
  }
  torch::autograd::set_history(output, call);
  return output;
}

}  // namespace etude::inline v0
