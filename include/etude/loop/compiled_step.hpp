#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "etude/data/batch.hpp"
#include "etude/model/compiled_graph.hpp"
#include "etude/model/compute_loss_option.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

class EventSource;

/// Runs training steps through the model's compiled graph, as the argument `compiled_graph` says. Each reason
/// for running `forward` instead gives one warning, at most five in all, or an error if the graph is
/// required.
class CompiledStep {
 public:
  /// Throws ArgumentError, which lists the reasons, if the graph is required and can't be used. May load the
  /// graph, and throws whatever that throws.
  static void check(const EventSource& events);

  /// Called at the beginning of a training and of each of its phases. Throws as `check` does.
  void begin_training(const EventSource& events);

  /// Whether the steps use the graph where a batch allows it.
  bool is_on() const { return !graph_.expired(); }

  /// The loss and the outputs of a batch of a training step, or nothing if `forward` must compute them, which
  /// is never an error for a batch that adds nothing to the loss. Throws DataError if the graph is required
  /// and can't compute the batch, and whatever the graph throws.
  std::optional<LossOutput> loss_of(const EventSource& events, const Batch& batch);

 private:
  /// Records a reason. Returns false if it was already reported, or too many were.
  bool is_news(const std::string& reason);
  void warn(const TrainingArguments& args, std::string_view where, std::string_view reason) const;

  // Empty if no step uses it. Weak, so that a model that model_init replaces isn't kept.
  std::weak_ptr<HasCompiledGraph> graph_;
  std::set<std::string> given_;  // the reasons that were reported
};

}  // namespace etude::inline v0
