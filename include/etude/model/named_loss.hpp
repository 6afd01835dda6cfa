#pragma once

#include <string>
#include <vector>

#include "etude/model/loss.hpp"
#include "etude/reflect/enum.hpp"

namespace etude::inline v0 {

/// A loss by its name; `model` stands for the loss that the model computes itself.
ETUDE_ENUM(LossName, model, cross_entropy, bce_with_logits, mse, l1, huber, smooth_l1);

/// True if the loss's labels are numbers, not classes.
bool takes_numbers(LossName loss);

/// The loss of the first output: the mean over its elements or, for `cross_entropy`, over the labels that
/// aren't -100. Scores are [N, C], or [N, ..., C] for labels [N, ...]. Empty for `model`. The loss throws
/// DataError if the shapes of the output and the labels don't fit.
Loss named_loss(LossName loss);

/// Throws ArgumentError if nothing computes the loss: it is `model`, and none of the model's `inputs` are
/// labels.
void check_loss(LossName loss, const std::vector<std::string>& inputs, bool takes_labels);

}  // namespace etude::inline v0
