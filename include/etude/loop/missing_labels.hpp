#pragma once

#include <string_view>

#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// Remembers whether a trainer's evaluations have met batches without labels.
class MissingLabels {
 public:
  /// `args` must outlive this.
  explicit MissingLabels(const TrainingArguments& args) : args_(args) {}

  /// Whether `compute_loss` asked for labels when there were none.
  bool loss_needs_them() const { return loss_needs_them_; }
  void note_loss_needs_them() { loss_needs_them_ = true; }

  /// Warns, once, that the evaluation `prefix` has no labels for `compute_metrics`.
  void warn(std::string_view prefix);

 private:
  const TrainingArguments& args_;
  bool loss_needs_them_ = false;
  bool warned_ = false;
};

}  // namespace etude::inline v0
