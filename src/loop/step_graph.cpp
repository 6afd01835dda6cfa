#include "etude/loop/step_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "etude/base/error.hpp"
#include "etude/libtorch/torch_error.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

bool have_same_form(const Tensors& a, const Tensors& b) {
  return std::ranges::equal(a, b, [](const torch::Tensor& x, const torch::Tensor& y) {
    return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() && x.device() == y.device() &&
           x.layout() == y.layout();
  });
}

Tensors copies_of(const Tensors& tensors) {
  return tensors.transform([](const torch::Tensor& tensor) { return tensor.clone(); });
}

void copy_to(const Tensors& to, const Tensors& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i], /*non_blocking=*/true);
}

}  // namespace

}  // namespace detail

StepGraph::StepGraph(torch::Device device, const Model& model, Optimizer& optimizer)
    : model_(model), optimizer_(optimizer), graph_(device) {
  if (!optimizer.make_capturable())
    throw ArgumentError(
        fmt::format("cuda_graph is true: must be false with {}, which gets its learning rates from the host: "
                    "optim must be one of {} for it",
                    optimizer.type(), optimizers_with(&OptimizerTraits::is_elementwise)));
}

StepGraph::~StepGraph() = default;

std::vector<torch::Tensor> StepGraph::run(const Batch& batch,
                                          detail::FunctionRef<std::vector<torch::Tensor>(Batch&)> work) {
  const auto eagerly = [&] {
    Batch own = batch;
    return work(own);
  };
  for (const ParamGroup& group : optimizer_.param_groups())
    if (group.momentum)
      throw ArgumentError(
          "cuda_graph is true: must be false with a schedule that changes the momentum, which captured steps "
          "keep, or cycle_momentum must be false");
  optimizer_.flat_parameters().mend();
  if (is_captured_ && is_outdated()) {
    is_captured_ = false;
    warmup_ = 0;
  }
  const bool fits = batch.size == inputs_.size && detail::have_same_form(batch.inputs, inputs_.inputs) &&
                    detail::have_same_form(batch.labels, inputs_.labels);
  if (!is_captured_) {
    if (!fits) warmup_ = 0;
    if (warmup_++ < warmup_steps) {
      inputs_ = batch;
      return eagerly();
    }
    capture(batch, work);
  } else if (!fits) {
    return eagerly();
  } else {
    const torch::NoGradGuard no_grad;
    detail::copy_to(inputs_.inputs, batch.inputs);
    detail::copy_to(inputs_.labels, batch.labels);
    optimizer_.prepare_captured_step();
    optimizer_.count_replayed_step();
  }
  graph_.replay();
  ++replayed_;
  return results_;
}

void StepGraph::capture(const Batch& batch, detail::FunctionRef<std::vector<torch::Tensor>(Batch&)> work) {
  inputs_ = {detail::copies_of(batch.inputs), detail::copies_of(batch.labels), batch.size};
  results_.clear();
  optimizer_.prepare_captured_step();
  with_place(
      [&] {
        graph_.capture([&] {
          Batch inputs = inputs_;
          results_ = work(inputs);
        });
      },
      [] {
        return "a step captured for cuda_graph, in which the model and the loss may neither read values on "
               "the host nor "
               "wait for the device";
      });
  places_.clear();
  const auto add = [&](const torch::Tensor& tensor) {
    places_.push_back({tensor, tensor.data_ptr(), tensor.requires_grad()});
  };
  for (const auto& [name, parameter] : model_.named_parameters()) add(parameter);
  for (const auto& [name, buffer] : model_.named_buffers()) add(buffer);
  weight_decays_.clear();
  for (const auto& group : optimizer_.param_groups()) weight_decays_.push_back(group.weight_decay);
  generation_ = optimizer_.flat_parameters().generation();
  is_captured_ = true;
}

bool StepGraph::is_outdated() const {
  return generation_ != optimizer_.flat_parameters().generation() ||
         !std::ranges::equal(optimizer_.param_groups(), weight_decays_, {}, &ParamGroup::weight_decay) ||
         std::ranges::any_of(places_, [](const Place& place) {
           return place.tensor.data_ptr() != place.data ||
                  place.tensor.requires_grad() != place.requires_grad;
         });
}

}  // namespace etude::inline v0
