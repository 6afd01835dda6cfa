#include "etude/loop/non_finite_origin.hpp"

#include <ATen/record_function.h>
#include <fmt/format.h>
#include <torch/autograd.h>
#include <torch/nn/module.h>

#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "etude/libtorch/record_function.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// Whether numbers have inf or NaN.
struct NonFinite {
  bool inf = false, nan = false, floats = false;

  void add(double value) {
    inf |= std::isinf(value);
    nan |= std::isnan(value);
  }
  void add(const at::Tensor& tensor) {
    if (tensor.defined() && tensor.is_sparse()) return add(tensor._values());
    if (!tensor.defined() || !tensor.is_floating_point() || tensor.layout() != at::kStrided ||
        tensor.is_meta() || tensor.numel() == 0)
      return;
    const torch::NoGradGuard no_grad;
    floats = true;
    add(tensor.detach().abs().max().to(at::kDouble).item<double>());
  }
  void add(const c10::IValue& value) {
    if (value.isTensor()) return add(value.toTensor());
    if (value.isDouble()) return add(value.toDouble());
    if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
  }
  bool any() const { return inf || nan; }
  std::string_view name() const { return nan ? "NaN" : "inf"; }
};

bool is_non_finite(const at::Tensor& tensor) {
  NonFinite found;
  found.add(tensor);
  return found.any();
}

/// The rows of a tensor that have inf or NaN, if its first dimension is `size`.
std::vector<std::int64_t> non_finite_rows(const at::Tensor& tensor, std::int64_t size) {
  if (!tensor.defined() || !tensor.is_floating_point() || tensor.layout() != at::kStrided ||
      tensor.dim() == 0 || tensor.size(0) != size || tensor.numel() == 0)
    return {};
  const torch::NoGradGuard no_grad;
  const auto bad = torch::isfinite(tensor.detach()).logical_not().reshape({size, -1}).any(1).nonzero();
  const auto rows = bad.flatten().to(at::kLong).cpu().contiguous();
  return {rows.data_ptr<std::int64_t>(), rows.data_ptr<std::int64_t>() + rows.numel()};
}

/// The modules of a model, by the memory of their parameters.
class Layers {
 public:
  explicit Layers(const Model& model) {
    std::map<std::string, std::string> types;
    if (const auto module = model.module())
      for (const auto& each : module->named_modules("", /*include_self=*/true))
        types[each.key()] = type_of(*each.value());
    for (const auto& [name, parameter] : model.named_parameters()) {
      const auto dot = name.rfind('.');
      const auto layer = dot == name.npos ? "" : name.substr(0, dot);
      const auto type = types[layer];
      by_memory_[parameter.data_ptr()] = layer.empty()  ? type.empty() ? model.name() : type
                                         : type.empty() ? layer
                                                        : fmt::format("{} ({})", layer, type);
    }
  }

  /// The module of a parameter, or of a view that begins with it; null for other tensors.
  const std::string* of(const at::Tensor& tensor) const {
    if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_meta()) return nullptr;
    const auto found = by_memory_.find(tensor.data_ptr());
    return found == by_memory_.end() ? nullptr : &found->second;
  }

 private:
  static std::string type_of(const torch::nn::Module& module) {
    auto type = module.name();
    if (const auto colon = type.rfind(':'); colon != type.npos) type = type.substr(colon + 1);
    if (type.ends_with("Impl")) type.resize(type.size() - 4);
    return type;
  }

  std::map<const void*, std::string> by_memory_;
};

/// While it lives, looks for the first operator of this thread that makes inf or NaN from finite numbers.
class LayerWatch {
 public:
  LayerWatch(const Layers& layers, std::int64_t batch_size) : layers_(layers), batch_size_(batch_size) {
    before_ = std::exchange(active(), this);
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  LayerWatch(const LayerWatch&) = delete;
  LayerWatch& operator=(const LayerWatch&) = delete;
  ~LayerWatch() {
    at::removeCallback(handle_);
    active() = before_;
  }

  bool has_found() const { return !operator_.empty(); }

  /// Describes the operator that was found; `pass` is the name of the pass, for the text.
  NonFiniteOrigin origin(std::string_view pass) const {
    auto text = operator_;
    if (is_own_) text += " in " + *layer_;
    text += fmt::format(" made {} in the {} pass", made_, pass);
    if (!is_own_ && layer_) text += ", after " + *layer_;
    return {std::move(text), rows_};
  }

 private:
  struct Inputs : at::ObserverContext {
    NonFinite values;
    bool is_own = false;  // whether the operator takes a parameter
  };

  static LayerWatch*& active() {
    thread_local LayerWatch* watch = nullptr;
    return watch;
  }

  // LibTorch swallows exceptions thrown here, and would call this again for operators run here.
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    auto* self = active();
    if (self == nullptr || self->has_found()) return nullptr;
    const at::RecordFunctionGuard unheard(false);
    auto inputs = std::make_unique<Inputs>();
    const auto look_for_layer = [&](const at::Tensor& tensor) {
      if (const auto* layer = self->layers_.of(tensor)) {
        self->layer_ = layer;
        inputs->is_own = true;
      }
    };
    for (const c10::IValue& value : libtorch::inputs_of(function)) {
      inputs->values.add(value);
      if (value.isTensor()) look_for_layer(value.toTensor());
      if (value.isTensorList())
        for (const at::Tensor& tensor : value.toTensorVector()) look_for_layer(tensor);
    }
    return inputs;
  }

  static void end(const at::RecordFunction& function, at::ObserverContext* context) {
    auto* self = active();
    if (self == nullptr || context == nullptr || self->has_found()) return;
    const at::RecordFunctionGuard unheard(false);
    const auto& inputs = *static_cast<Inputs*>(context);
    const std::string_view name = function.name();
    if (!inputs.values.floats || libtorch::gives_raw_memory(name)) return;
    NonFinite outputs;
    for (const c10::IValue& value : function.outputs()) outputs.add(value);
    const bool makes = (outputs.nan && !inputs.values.nan) || (outputs.inf && !inputs.values.any());
    if (!makes) return;
    self->operator_ = name;
    self->made_ = outputs.name();
    self->is_own_ = inputs.is_own;
    for (const c10::IValue& value : function.outputs())
      if (self->rows_.empty() && value.isTensor())
        self->rows_ = non_finite_rows(value.toTensor(), self->batch_size_);
  }

  const Layers& layers_;
  std::int64_t batch_size_;
  LayerWatch* before_ = nullptr;
  at::CallbackHandle handle_ = 0;
  const std::string* layer_ = nullptr;  // of the last parameter that an operator took
  std::string operator_;
  std::string_view made_;
  bool is_own_ = false;
  std::vector<std::int64_t> rows_;
};

/// A tensor of a batch, or a weight, that isn't finite before anything is computed.
NonFiniteOrigin non_finite_before(const Model& model, const Batch& batch) {
  for (const auto& [name, parameter] : model.named_parameters())
    if (is_non_finite(parameter)) return {fmt::format("the parameter {} has such numbers already", name)};
  const auto look = [&](const Tensors& tensors, std::string_view kind) -> NonFiniteOrigin {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (is_non_finite(tensors[i]))
        return {fmt::format("the {} {} has such numbers already", kind,
                            tensors.names().empty() ? fmt::format("{}", i) : tensors.names()[i]),
                tensors.is_row_per_example(i) ? non_finite_rows(tensors[i], batch.size)
                                              : std::vector<std::int64_t>()};
    return {};
  };
  auto found = look(batch.inputs, "input");
  return found.text.empty() ? look(batch.labels, "label") : found;
}

}  // namespace

}  // namespace detail

NonFiniteOrigin find_non_finite(const Model& model, const Batch& batch,
                                detail::FunctionRef<torch::Tensor(const Batch&)> compute_loss,
                                bool backward) {
  if (auto found = detail::non_finite_before(model, batch); !found.text.empty()) return found;
  const detail::Layers layers(model);
  torch::Tensor loss;
  NonFiniteOrigin origin;
  {
    const detail::LayerWatch watch(layers, batch.size);
    loss = compute_loss(batch);
    if (watch.has_found()) origin = watch.origin("forward");
  }
  if (detail::is_non_finite(loss)) {
    if (origin.text.empty()) origin.text = "the loss isn't finite, though every operator's output is";
    return origin;
  }
  if (!backward || !loss.requires_grad()) return {};

  std::vector<std::string> names;
  std::vector<torch::Tensor> parameters;
  for (const auto& [name, parameter] : model.named_parameters())
    if (parameter.requires_grad()) {
      names.push_back(name);
      parameters.push_back(parameter);
    }
  const detail::LayerWatch watch(layers, batch.size);
  const auto gradients = torch::autograd::grad({loss}, parameters, {}, /*retain_graph=*/false,
                                               /*create_graph=*/false, /*allow_unused=*/true);
  // A backward pass reaches the last layers first.
  for (std::size_t i = gradients.size(); i-- > 0;)
    if (detail::is_non_finite(gradients[i])) {
      // A number that the loss leaves out, as torch::where does, may still reach the gradients.
      if (origin.text.empty() && watch.has_found()) origin = watch.origin("backward");
      origin.text +=
          fmt::format("{}the gradient of {} isn't finite", origin.text.empty() ? "" : ", and ", names[i]);
      return origin;
    }
  return {};
}

}  // namespace etude::inline v0
