#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/dispatch/describe.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/sample.hpp"
#include "etude/metrics/time_by_activity.hpp"
#include "etude/parallel/communicator.hpp"
#include "etude/parallel/memory_estimate.hpp"
#include "etude/trainer_options.hpp"

namespace etude::inline v0 {

class EventSource;
class TrainingDryRun;

/// A type-erased trainer, through which a callback can call the trainer that raised its event.
class AnyTrainer {
 public:
  explicit AnyTrainer(EventSource& events) : events_(events) {}
  AnyTrainer(const AnyTrainer&) = delete;
  AnyTrainer& operator=(const AnyTrainer&) = delete;

  /// Evaluates immediately and returns the metrics. Raises the usual events, also to the calling callback.
  /// The result doesn't affect which model is the best of a training.
  Metrics evaluate(const EvaluateOptions& options = {});

  /// Returns the loss that the trainer computes for a batch, and the model's outputs, with gradients unless
  /// the caller has disabled them. A loss that is divided by the number of labels uses the number in this
  /// batch.
  LossOutput compute_loss(const Batch& batch);

  /// Writes the weights, and the processing class if any, to a folder.
  void save_model(const std::filesystem::path& directory) const;

  /// Estimates the memory that a training takes: see `estimate_memory`.
  MemoryEstimate memory_estimate(const MemoryEstimateOptions& options = {});

  /// Raises `LogSamples`.
  void log_samples(const std::vector<Sample>& samples);

  /// Pause, continue and end the training from any thread: see `TrainerBase::pause`.
  void pause();
  void resume();
  bool cancel(std::string_view reason);

  /// The types of all callbacks, without their namespaces.
  std::vector<std::string_view> callback_names();

  /// The events that callbacks handle, in order, and the callbacks of each.
  std::vector<EventHandlers> event_handlers() const;

  /// The wall time by activity of the training under way, or of the last one.
  TimeByActivity time_by_activity() const;

  /// The options that the trainer was built from.
  const TrainerOptions& options() const;

  /// The run configuration; empty before the first training.
  const TrainerRunConfig& run_config() const;

  /// Connects the processes of the training, which must all send the same messages in the same order. After
  /// an exception it sends nothing, since this process has left the others.
  Communicator& communicator();

 private:
  friend TrainingDryRun;

  EventSource& events_;
};

}  // namespace etude::inline v0
