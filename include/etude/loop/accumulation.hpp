#pragma once

#include <cstdint>
#include <utility>

#include "etude/loop/plan.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// The number of micro-batches per update: `gradient_accumulation_steps`, unless it varies between epochs.
class Accumulation {
 public:
  /// `args` must outlive this.
  explicit Accumulation(const TrainingArguments& args) : args_(args) {}

  /// From now on `of` decides the number for each epoch.
  void vary(AccumulationOf of) { of_ = std::move(of); }
  bool varies() const { return static_cast<bool>(of_); }

  /// Returns the number for `epoch`. Throws ArgumentError unless it is at least 1.
  std::int64_t in(std::int64_t epoch) const;

  /// Returns `in` as a function of epochs counted from `first`. It refers to this object, and is empty if the
  /// number is the same in all epochs.
  AccumulationOf by_epoch(std::int64_t first = 0) const;

  void begin_epoch(std::int64_t epoch) { steps_ = in(epoch); }

  /// The number in the epoch under way; 1 before the first.
  std::int64_t steps() const { return steps_; }

 private:
  const TrainingArguments& args_;
  AccumulationOf of_;
  std::int64_t steps_ = 1;
};

}  // namespace etude::inline v0
