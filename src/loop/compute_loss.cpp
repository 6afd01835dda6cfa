#include "etude/loop/compute_loss.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/loss.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "etude/libtorch/torch_error.hpp"
#include "etude/loop/several_optimizers.hpp"
#include "etude/model/label_smoothing.hpp"

namespace etude::inline v0 {

Tensors without_keys(const Tensors& outputs, const std::vector<std::string>& keys) {
  for (const auto& key : keys) static_cast<void>(outputs.at(key));  // throws, listing the outputs, if missing
  if (keys.empty()) return outputs;
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (std::ranges::find(keys, outputs.names()[i]) == keys.end()) kept.push_back(i);
  return outputs.at_positions(kept);
}

Tensors inputs_with_labels(const Model& model, const Batch& batch) {
  std::vector<torch::Tensor> all(batch.inputs.begin(), batch.inputs.end());
  all.insert(all.end(), batch.labels.begin(), batch.labels.end());
  if (!model.accepts(all.size())) return batch.inputs;
  auto names = batch.inputs.names();
  names.insert(names.end(), batch.labels.names().begin(), batch.labels.names().end());
  if (names.size() != all.size()) names.clear();  // one of them has none
  return {std::move(all), std::move(names)};
}

LossOutput own_loss(const Tensors& outputs) {
  if (const auto* loss = outputs.find("loss")) return {*loss, without_keys(outputs, {"loss"}), false};
  if (!outputs.names().empty())
    throw DataError(fmt::format(
        "no loss is set, and none of the model's outputs ({}) is named loss: set the trainer's `loss` "
        "or `compute_loss`",
        fmt::join(outputs.names(), ", ")));
  if (outputs.empty()) throw DataError("the model returned no output to use as the loss");
  if (outputs[0].numel() != 1)
    throw DataError(fmt::format(
        "no loss is set, and the model's first output, {}, can't be the loss: it isn't one element; set "
        "the trainer's `loss` or `compute_loss`",
        describe(outputs[0])));
  std::vector<std::size_t> others(outputs.size() - 1);
  std::iota(others.begin(), others.end(), std::size_t{1});
  return {outputs[0], outputs.at_positions(others), false};
}

namespace detail {

namespace {

/// Describes the place of the model's exception `what`.
std::string forward_of(const Model& model, const Tensors& inputs, std::string_view what) {
  const auto parameters = model.parameters();
  if (parameters.empty()) return "in forward";
  const auto dtype = parameters.front().scalar_type();
  const auto mismatch = [&](const torch::Tensor& input, std::string_view unless) {
    return fmt::format("in forward, whose parameters are {0} where an input is {1} (make it {0}{2})",
                       dtype_name(dtype), dtype_name(input.scalar_type()), unless);
  };
  for (const auto& input : inputs)
    if (input.is_floating_point() && input.scalar_type() != dtype) return mismatch(input, "");
  // Integers may be meant for an embedding, and the error may be elsewhere.
  if (what.find("type") == what.npos) return "in forward";
  for (const auto& input : inputs)
    if (!input.is_floating_point() && !input.is_complex())
      return mismatch(input, input.scalar_type() == torch::kLong ? ", unless it is for an embedding" : "");
  return "in forward";
}

std::string loss_of(const Loss& loss, const Tensors& outputs) {
  return fmt::format("in {}, of output {}", loss.module() ? loss.module()->name() : "the loss",
                     describe(outputs));
}

Tensors forward_with_labels(const Model& model, const Batch& batch) {
  return model.takes_batch() ? model.forward(batch) : model.forward(inputs_with_labels(model, batch));
}

std::string no_labels(const Tensors& inputs) {
  std::string text = "the dataset has no labels, and `loss` needs them";
  if (!inputs.names().empty())
    text += fmt::format(" (it has {}: those that are labels must be called labels, or named in label_names)",
                        fmt::join(inputs.names(), ", "));
  return text;
}

/// Explains why forward gets more tensors than expected when the loss was forgotten.
std::string labels_given(const Model& model, const Batch& batch) {
  const auto all = batch.inputs.size() + batch.labels.size();
  if (model.takes_batch() || batch.labels.empty() || !model.accepts(all)) return "";
  return ", which gets the labels too, because `loss` is not set";
}

/// Applies label smoothing to the loss that a model computes itself and also returns among its outputs.
void smooth_own_loss(LossOutput& own, const Batch& batch, double factor, LossItems items) {
  const auto* found = own.outputs.find("logits");
  if (own.outputs.empty() || batch.labels.size() != 1)
    throw DataError(
        "label_smoothing_factor is set: it needs one tensor of labels, and a model that returns its scores "
        "as well as its loss");
  auto logits = found ? *found : own.outputs[0];
  auto labels = batch.labels[0];
  if (items == LossItems::shifted_labels && labels.dim() > 0 && logits.dim() > labels.dim()) {
    logits = logits.slice(-2, 0, -1);
    labels = labels.slice(-1, 1);
  }
  own.loss = label_smoothed_cross_entropy(logits, labels, factor);
}

torch::Tensor smoothed(const torch::nn::CrossEntropyLossImpl& loss, const Tensors& outputs,
                       const Tensors& labels, double factor) {
  namespace F = torch::nn::functional;
  return F::cross_entropy(outputs, labels,
                          F::CrossEntropyFuncOptions()
                              .weight(loss.weight)
                              .ignore_index(loss.options.ignore_index())
                              .reduction(loss.options.reduction())
                              .label_smoothing(factor));
}

/// The outputs of `forward()`, computed in the precision of the arguments.
template <class Forward>
Tensors outputs_in_precision(const TrainerCore& core, Forward forward) {
  return in_precision(core, [&]() -> LossOutput { return {{}, forward()}; }).outputs;
}

}  // namespace

}  // namespace detail

torch::Tensor as_float32(const torch::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return type == torch::kBFloat16 || type == torch::kHalf ? tensor.to(torch::kFloat) : tensor;
}

std::string place_of(const Model& model, std::string_view moment, const Batch& batch) {
  return fmt::format("{} in {}, inputs {}, labels {}", model.name(), moment, describe(batch.inputs),
                     batch.labels.empty() ? "none" : describe(batch.labels));
}

LossOutput compute_loss(TrainerCore& core, const Batch& given, std::optional<double> num_items_in_batch) {
  std::optional<Batch> cast;
  const Batch& batch = in_type_of_weights(core, given, cast);
  const auto in_forward = [&](std::string_view what) {
    return detail::forward_of(core.model, batch.inputs, what);
  };
  const auto factor = core.args.label_smoothing_factor;
  if (core.options.compute_loss)
    return in_precision(core, [&] {
      return LossOutput(core.options.compute_loss.function()(core.model, batch, num_items_in_batch));
    });
  if (core.step_sharing() == StepSharing::in_turn)
    return in_precision(core, [&] { return detail::loss_of_optimizers(core, batch, num_items_in_batch); });
  // The option `loss` computes in the dtypes that it is given, without autocast.
  std::optional<AutocastGuard> as_given;
  if (autocast_dtype(core.args)) as_given.emplace(core.device.type(), std::nullopt);
  if (!core.options.loss) {
    auto own = own_loss(with_place(
        [&] {
          return detail::outputs_in_precision(core,
                                              [&] { return detail::forward_with_labels(core.model, batch); });
        },
        [&](std::string_view what) { return in_forward(what) + detail::labels_given(core.model, batch); }));
    if (factor > 0) detail::smooth_own_loss(own, batch, factor, core.model.loss_items());
    return own;
  }
  if (batch.labels.empty()) throw NoTensorsError(detail::no_labels(batch.inputs));
  auto outputs = with_place(
      [&] { return detail::outputs_in_precision(core, [&] { return core.model.forward(batch); }); },
      in_forward);
  if (factor > 0)
    if (const auto* module = dynamic_cast<torch::nn::CrossEntropyLossImpl*>(core.options.loss.module().get()))
      return with_place(
          [&]() -> LossOutput {
            detail::check_operands("CrossEntropyLoss", outputs, batch.labels);
            return {detail::smoothed(*module, outputs, batch.labels, factor), outputs};
          },
          [&] { return detail::loss_of(core.options.loss, outputs); });
  auto loss = with_place([&] { return core.options.loss(outputs, batch.labels, num_items_in_batch); },
                         [&] { return detail::loss_of(core.options.loss, outputs); });
  return {std::move(loss), std::move(outputs), core.options.loss.counts_items()};
}

LossOutput outputs_without_labels(TrainerCore& core, const Batch& batch) {
  auto outputs = with_place(
      [&] { return detail::outputs_in_precision(core, [&] { return core.model.forward(batch); }); },
      [&](std::string_view what) { return detail::forward_of(core.model, batch.inputs, what); });
  const bool is_models_own = !core.options.loss && !core.options.compute_loss && !outputs.empty();
  const auto* loss = outputs.find("loss");
  // A prediction needs no loss, and an output without dimensions may belong to a single example.
  const auto is_scalar = [](const torch::Tensor& output) { return output.dim() == 0; };
  const bool are_predictions =
      core.is_predicting() &&
      (outputs.size() == 1 || (batch.size == 1 && std::ranges::all_of(outputs, is_scalar)));
  if (!loss && outputs.names().empty() && is_models_own && !are_predictions) loss = &outputs[0];
  if (!is_models_own || !loss || !loss->defined() || loss->dim() > 0) return {{}, std::move(outputs)};
  return own_loss(outputs);
}

LossOutput LossParts::added_to(LossOutput computed) const {
  if (values_.empty()) return computed;
  std::vector<torch::Tensor> parts(computed.logs.begin(), computed.logs.end());
  auto names = computed.logs.names();
  for (const auto& [name, value] : values_) {
    names.push_back(name);
    parts.push_back(value);
  }
  computed.logs = {std::move(parts), std::move(names)};
  return computed;
}

Tensors parts_of(const LossOutput& computed) {
  std::vector<torch::Tensor> parts;
  std::vector<std::string> names;
  const auto add = [&](const std::string& name, const torch::Tensor& part) {
    if (!part.defined() || part.numel() != 1)
      throw DataError(
          fmt::format("'{}', a part of the loss, is {}: must be one element", name, describe(part)));
    names.push_back(name);
    parts.push_back(part.detach());
  };
  const auto& logged = computed.logs.names();
  if (logged.size() != computed.logs.size())
    throw DataError(fmt::format("the logs of a loss have no names ({}): must be like {{{{\"kl\", kl}}}}",
                                describe(computed.logs)));
  for (std::size_t i = 0; i < logged.size(); ++i) add(logged[i], computed.logs[i]);
  return {std::move(parts), std::move(names)};
}

void log_parts(TrainerCore& core, const LossOutput& computed) {
  const auto parts = parts_of(computed);
  const auto& group = core.group;
  if (group.is_padding()) return;  // only keeps this process in step with the others
  const double share_of_examples = group.share_of_examples();
  const bool adds_up = computed.counts_items || group.adds_up();
  const double share = adds_up ? share_of_examples : group.share().value_or(share_of_examples);
  for (std::size_t i = 0; i < parts.size(); ++i)
    core.pending_logs.add(parts.names()[i], adds_up ? parts[i] / share : parts[i], share);
}

void explain_differentiation(const c10::Error& error) {
  const std::string what = error.what_without_backtrace();
  if (what.find("does not require grad") == std::string::npos) return;
  throw DataError(fmt::format(
      "compute_loss differentiates, but gradients are disabled in an evaluation: set eval_enable_grad, or "
      "leave that part out unless model.is_training() ({})",
      what.substr(0, what.find('\n'))));
}

}  // namespace etude::inline v0
