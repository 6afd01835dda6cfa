#pragma once

#include <string_view>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// Detects that a loss with an unknown divisor is computed on unequal parts of a batch: the mean of the
/// parts' losses may then differ from the loss of the whole batch.
class UnknownDivisor {
 public:
  /// `args` must outlive this.
  explicit UnknownDivisor(const TrainingArguments& args) : args_(args) {}

  /// Begins a group that isn't divided, or whose loss has a known divisor.
  void begin() { are_unequal_ = false; }
  /// Begins a group of these micro-batches, with this process's share of each: compares their numbers of
  /// examples and labels, and looks for labels of -100. Labels on a device are not read.
  void begin(const std::vector<Batch>& micro_batches, const std::vector<double>& shares);

  /// Notes a loss that counts as the mean over the examples of its part.
  void note_mean() { matters_ |= are_unequal_; }
  bool matters() const { return matters_ && !warned_; }

  /// Warns, once, about the loss with this name.
  void warn(std::string_view loss);

 private:
  const TrainingArguments& args_;
  bool are_unequal_ = false;
  bool matters_ = false;
  bool warned_ = false;
};

}  // namespace etude::inline v0
