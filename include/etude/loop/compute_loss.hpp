#pragma once

#include <c10/util/Exception.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/loop/core.hpp"

namespace etude {

/// `outputs` without those that `keys` name.
Tensors without_keys(const Tensors& outputs, const std::vector<std::string>& keys);

/// The loss of a model that computes it itself: its output named "loss", or its first.
LossOutput own_loss(const Tensors& outputs);

/// Where an exception came from that a batch has caused: the model, `moment` and what is in the batch.
std::string place_of(const Model& model, std::string_view moment, const Batch& batch);

/// The loss of a batch as the trainer's options say.
LossOutput compute_loss(TrainerCore& core, const Batch& batch, std::optional<double> num_items_in_batch);

/// The outputs of the model for a batch without labels, and the loss if the model gives it itself: as an
/// output named "loss", or as its first if that has no dimension, as no prediction has.
LossOutput outputs_without_labels(TrainerCore& core, const Batch& batch);

/// Throws `DataError` with what to do, if `error` came of differentiating where no gradients are taken.
void explain_differentiation(const c10::Error& error);

/// `loss`, if it is one element. Throws `DataError` otherwise.
const torch::Tensor& checked_loss(const torch::Tensor& loss);

/// Throws `DataError` unless `loss` is something to call `backward` on.
void check_training_loss(const torch::Tensor& loss);

/// The same of the loss of a batch. Once for each trainer it warns of tensors that the losses of the first
/// two batches are both to be differentiated by and that nobody trains, such as those of a layer that wasn't
/// registered; a tensor that is made for one batch, as for a gradient penalty, is none of them.
void check_training_loss(TrainerCore& core, const torch::Tensor& loss, const Batch& batch);

/// The loss of a training step, detached. Throws `DataError` if it is none, or if the first one that isn't
/// detached has left no gradient, since nobody has called `backward` on it.
torch::Tensor checked_step_loss(TrainerCore& core, torch::Tensor loss);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/loop/impl/compute_loss.ipp"
#endif
