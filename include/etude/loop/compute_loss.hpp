#pragma once

#include <c10/util/Exception.h>
#include <torch/types.h>

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/scoped_value.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/loop/core.hpp"
#include "etude/precision/cast_guard.hpp"
#include "etude/trainer_options.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// `outputs` without those named in `keys`.
Tensors without_keys(const Tensors& outputs, const std::vector<std::string>& keys);

/// The inputs of `forward` if the model computes its loss itself: those of the batch, and the labels if
/// forward takes them.
Tensors inputs_with_labels(const Model& model, const Batch& batch);

/// Returns the loss that a model computes itself: its output named "loss", or else its first output.
LossOutput own_loss(const Tensors& outputs);

/// Describes where a batch caused an exception: the model, `moment` and the batch's contents.
std::string place_of(const Model& model, std::string_view moment, const Batch& batch);

/// The type that autocast computes in, if the arguments ask for one.
inline std::optional<torch::ScalarType> autocast_dtype(const TrainingArguments& args) {
  return args.bf16 ? std::optional(torch::kBFloat16) : args.fp16 ? std::optional(torch::kHalf) : std::nullopt;
}

/// Converts a bfloat16 or float16 tensor to float32, and returns any other unchanged.
torch::Tensor as_float32(const torch::Tensor& tensor);

/// Returns the batch or, if the weights were cast, sets `cast` to a copy with inputs of the weights' type and
/// returns it.
inline const Batch& in_type_of_weights(const TrainerCore& core, const Batch& batch,
                                       std::optional<Batch>& cast) {
  return core.weights_are ? cast.emplace(with_inputs_as(batch, *core.weights_are)) : batch;
}

/// Runs `compute()`, under autocast if the arguments ask for it, and returns its result. With autocast, and
/// if the weights were cast, the loss and outputs are float32.
template <std::invocable Compute>
LossOutput in_precision(const TrainerCore& core, Compute compute) {
  const auto dtype = autocast_dtype(core.args);
  if (!dtype && !core.weights_are) return compute();
  LossOutput result = [&]() -> LossOutput {
    std::optional<AutocastGuard> lower;
    if (dtype) lower.emplace(core.device.type(), dtype);
    return compute();
  }();
  if (result.loss.defined()) result.loss = as_float32(result.loss);
  result.outputs = result.outputs.transform(as_float32);
  return result;
}

/// Collects the values that are logged while a loss is computed, for its `logs`.
class LossParts {
 public:
  explicit LossParts(TrainerCore& core) : under_way_(core.loss_parts, &values_) {}

  LossOutput added_to(LossOutput computed) const;

 private:
  using Values = std::vector<std::pair<std::string, torch::Tensor>>;

  Values values_;
  ScopedValue<Values*> under_way_;
};

/// The loss of a batch according to the trainer's options.
LossOutput compute_loss(TrainerCore& core, const Batch& batch, std::optional<double> num_items_in_batch);

/// The outputs of the model for a batch without labels, and the loss if the model computes it: an output
/// named "loss", or the first one if outputs have no names and it has no dimensions. In a prediction, such an
/// output isn't a loss if it is the only one, or if no output of a single example has dimensions.
LossOutput outputs_without_labels(TrainerCore& core, const Batch& batch);

/// Returns the parts of a loss that are logged, detached. Throws DataError for a part that isn't one element.
Tensors parts_of(const LossOutput& computed);

/// Adds the parts of a micro-batch's loss to the next log, averaged as the loss is.
void log_parts(TrainerCore& core, const LossOutput& computed);

/// Throws `DataError` with advice if `error` comes from differentiating where gradients are disabled.
void explain_differentiation(const c10::Error& error);

}  // namespace etude::inline v0
