#pragma once

#include <cstdint>
#include <exception>

#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// The number of examples that go through the model at once, which `auto_microbatching` reduces when memory
/// runs out.
class PartSize {
 public:
  /// `args` must outlive this.
  explicit PartSize(const TrainingArguments& args) : args_(args) {}

  /// The number for a batch of this many examples.
  std::int64_t of(std::int64_t batch_size) const { return size_ > 0 ? size_ : batch_size; }

  /// Returns true if this error, in a batch of this many examples, makes the training continue with smaller
  /// parts. In that case, halves their size and warns.
  bool shrink(const std::exception_ptr& error, std::int64_t batch_size);

  /// 0 as long as batches go through the model whole.
  std::int64_t state() const { return size_; }
  /// Does nothing without `auto_microbatching`.
  void load_state(std::int64_t size);

 private:
  const TrainingArguments& args_;
  std::int64_t size_ = 0;
};

}  // namespace etude::inline v0
