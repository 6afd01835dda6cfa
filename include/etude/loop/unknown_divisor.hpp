#pragma once

#include <string_view>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// Finds out whether a loss of which nobody knows what it is divided by is computed of unequal parts of a
/// batch, so that the mean of theirs may not be that of the whole.
class UnknownDivisor {
 public:
  /// `args` must outlive this.
  explicit UnknownDivisor(const TrainingArguments& args) : args_(args) {}

  /// Begins a group that isn't divided, or whose loss is known.
  void begin() { are_unequal_ = false; }
  /// Begins one with these micro-batches, of which this process has these shares: compares their examples
  /// and the labels of each, and looks for labels of -100. Labels on a device are not read.
  void begin(const std::vector<Batch>& micro_batches, const std::vector<double>& shares);

  /// A loss was computed that counts as the mean over the examples of its part.
  void note_mean() { matters_ |= are_unequal_; }
  bool matters() const { return matters_ && !warned_; }

  /// Warns, once, of the loss with this name.
  void warn(std::string_view loss);

 private:
  const TrainingArguments& args_;
  bool are_unequal_ = false;
  bool matters_ = false;
  bool warned_ = false;
};

}  // namespace etude::inline v0
