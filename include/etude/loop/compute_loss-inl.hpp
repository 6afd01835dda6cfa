#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/linkage.hpp"
#include "etude/loop/compute_loss.hpp"
#include "etude/loop/core.hpp"

namespace etude {

ETUDE_INLINE Tensors without_keys(const Tensors& outputs, const std::vector<std::string>& keys) {
  for (const auto& key : keys) static_cast<void>(outputs.at(key));  // says which there are, if not this one
  if (keys.empty()) return outputs;
  std::vector<torch::Tensor> kept;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (std::find(keys.begin(), keys.end(), outputs.names()[i]) != keys.end()) continue;
    kept.push_back(outputs[i]);
    names.push_back(outputs.names()[i]);
  }
  return {std::move(kept), std::move(names)};
}

ETUDE_INLINE LossOutput own_loss(const Tensors& outputs) {
  if (const auto* loss = outputs.find("loss")) return {*loss, without_keys(outputs, {"loss"}), false};
  if (!outputs.names().empty())
    throw DataError(
        fmt::format("the model gave no loss: its outputs are {}, and the trainer has neither `loss` nor "
                    "`compute_loss`",
                    fmt::join(outputs.names(), ", ")));
  if (outputs.empty()) throw DataError("the model gave no output to take the loss from");
  return {outputs[0], Tensors(std::vector<torch::Tensor>(outputs.begin() + 1, outputs.end())), false};
}

ETUDE_INLINE LossOutput compute_loss(TrainerCore& core, const Batch& batch,
                                     std::optional<double> num_items_in_batch) {
  if (core.options.compute_loss) return core.options.compute_loss(core.model, batch, num_items_in_batch);
  if (!core.options.loss) {
    if (core.model.takes_batch()) return own_loss(core.model.forward(batch));
    std::vector<torch::Tensor> all(batch.inputs.begin(), batch.inputs.end());
    all.insert(all.end(), batch.labels.begin(), batch.labels.end());
    return own_loss(
        core.model.forward(core.model.accepts(all.size()) ? Tensors(std::move(all)) : batch.inputs));
  }
  if (batch.labels.empty()) throw DataError("the dataset has no labels, and `loss` needs them");
  auto outputs = core.model.forward(batch);
  auto loss = core.options.loss(outputs, batch.labels, num_items_in_batch);
  return {std::move(loss), std::move(outputs), core.options.loss.counts_items()};
}

ETUDE_INLINE const torch::Tensor& checked_loss(const torch::Tensor& loss) {
  if (loss.defined() && loss.numel() == 1) return loss;
  throw DataError(
      fmt::format("the loss is {}: must be one element; reduce it (mean or sum)", describe(loss)));
}

ETUDE_INLINE void check_training_loss(const torch::Tensor& loss) {
  if (!checked_loss(loss).requires_grad())
    throw DataError("the loss depends on no parameter that is trained: all are frozen, or it was detached");
}

}  // namespace etude
