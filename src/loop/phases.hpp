#pragma once

#include <torch/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/loop/core.hpp"
#include "etude/trainer_options.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// Applies the changes of a phase to the trainer's options and arguments, and restores them at the end. A
/// training without the option `phases` is a single phase that changes nothing.
class Phases {
 public:
  /// `core` must outlive this.
  explicit Phases(TrainerCore& core);
  Phases(const Phases&) = delete;
  Phases& operator=(const Phases&) = delete;
  ~Phases();

  std::size_t size() const { return before_ ? before_->options.phases.size() : 1; }
  bool are_given() const { return before_.has_value(); }
  const std::string& name(std::size_t phase) const { return before_->options.phases[phase].first; }
  std::vector<std::string> names() const;

  /// Whether the first phases have these names, and another follows.
  bool begin_with(const std::vector<std::string>& done) const;

  /// Whether a phase has the same training examples as the one before.
  bool continues_data(std::size_t phase) const;

  /// Undoes the changes of the previous phase, and makes those of this one.
  void enter(std::size_t phase);

 private:
  struct Before {
    TrainerOptions options;
    TrainingArguments args;
    std::vector<std::pair<torch::Tensor, bool>> requires_grad;  // of each parameter
  };

  void set(TrainerOptions options, TrainingArguments args);

  TrainerCore& core_;
  std::optional<const Before> before_;  // if the option is set
};

}  // namespace etude::inline v0
