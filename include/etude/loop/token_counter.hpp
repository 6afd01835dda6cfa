#pragma once

#include <cstdint>
#include <optional>

#include "etude/data/batch.hpp"
#include "etude/model/model.hpp"
#include "etude/trainer_options.hpp"

namespace etude::inline v0 {

/// Counts the tokens of micro-batches, and the floating-point operations that they take.
class TokenCounter {
 public:
  /// All of these must outlive this.
  TokenCounter(const TrainerOptions& options, const TrainingArguments& args, const Model& model);

  /// Called before each training, because the model may have changed.
  void begin_training() { dense_parameters_.reset(); }

  /// The micro-batch's input tokens that count as seen. Warns once if padding should be left out and can't be
  /// recognised.
  std::int64_t input_tokens(const Batch& batch);

  /// The floating-point operations of forward and backward for a micro-batch whose first input, or
  /// `input_ids`, holds token ids: 6 per token and parameter (Kaplan et al. 2020, arXiv:2001.08361),
  /// embeddings excluded, as in Hugging Face's Trainer. 0 for other inputs, where they are unknown.
  double floating_point_ops(const Batch& batch);

 private:
  const TrainerOptions& options_;
  const TrainingArguments& args_;
  const Model& model_;
  bool warned_of_padding_ = false;
  std::optional<double> dense_parameters_;  // number of elements of all parameters but embeddings
};

}  // namespace etude::inline v0
