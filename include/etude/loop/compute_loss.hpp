#pragma once

#include <c10/util/Exception.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/loop/core.hpp"

namespace etude::inline v0 {

/// `outputs` without those named in `keys`.
Tensors without_keys(const Tensors& outputs, const std::vector<std::string>& keys);

/// The loss of a model that computes it itself: its output named "loss", or its first.
LossOutput own_loss(const Tensors& outputs);

/// Describes where a batch caused an exception: the model, `moment` and the batch's contents.
std::string place_of(const Model& model, std::string_view moment, const Batch& batch);

/// The loss of a batch according to the trainer's options.
LossOutput compute_loss(TrainerCore& core, const Batch& batch, std::optional<double> num_items_in_batch);

/// The outputs of the model for a batch without labels, and the loss if the model computes it: an output
/// named "loss", or the first one if it has no dimensions, which no prediction has.
LossOutput outputs_without_labels(TrainerCore& core, const Batch& batch);

/// Throws `DataError` with advice if `error` comes from differentiating where gradients are disabled.
void explain_differentiation(const c10::Error& error);

}  // namespace etude::inline v0

#ifndef ETUDE_COMPILED
#include "etude/loop/impl/compute_loss.ipp"
#endif
