#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/dispatch/describe.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/sample.hpp"
#include "etude/metrics/time_by_phase.hpp"
#include "etude/parallel/communicator.hpp"
#include "etude/parallel/memory_estimate.hpp"
#include "etude/trainer_options.hpp"

namespace etude::inline v0 {

template <class Trainer>
MemoryEstimate estimate_memory(Trainer& trainer, const MemoryEstimateOptions& options = {});

/// A type-erased trainer, through which a callback can call the trainer that raised its event.
class AnyTrainer {
 public:
  /// Evaluates immediately and returns the metrics. The usual events are raised, also to the calling
  /// callback; the result doesn't count for the best model of a training.
  virtual Metrics evaluate(const EvaluateOptions& options = {}) = 0;

  /// The loss of a batch as the trainer computes it, and the model's outputs, with gradients unless the
  /// caller has disabled them. If labels count as items, counts those of this batch.
  virtual LossOutput compute_loss(const Batch& batch) = 0;

  /// Writes the weights, and the processing class if any, to a folder.
  virtual void save_model(const std::filesystem::path& directory) const = 0;

  /// The memory that a training takes: see `estimate_memory`.
  virtual MemoryEstimate memory_estimate(const MemoryEstimateOptions& options = {}) = 0;

  /// Raises `LogSamples`.
  virtual void log_samples(const std::vector<Sample>& samples) = 0;

  /// Pause, continue and end the training from any thread: see `TrainerBase::pause`.
  virtual void pause() = 0;
  virtual void resume() = 0;
  virtual bool cancel(std::string_view reason) = 0;

  /// The types of all callbacks, without their namespaces.
  virtual std::vector<std::string_view> callback_names() = 0;

  /// The events that callbacks handle, in order, and the callbacks of each.
  virtual std::vector<EventHandlers> event_handlers() const = 0;

  /// The wall time of the training under way by phase, so far; afterwards that of the last one.
  virtual TimeByPhase time_by_phase() const = 0;

  /// The options that the trainer was built from.
  virtual const TrainerOptions& options() const = 0;

  /// The run configuration; empty before the first training.
  virtual const TrainerRunConfig& run_config() const = 0;

  /// The processes of the training, which must all send the same messages in the same order. After an
  /// exception this one is alone.
  virtual Communicator& communicator() = 0;

 protected:
  ~AnyTrainer() = default;
};

/// Adapts the trainer that raises `Events` to AnyTrainer.
template <class Events>
class AnyTrainerOf final : public AnyTrainer {
 public:
  explicit AnyTrainerOf(Events& events) : events_(events) {}

  Metrics evaluate(const EvaluateOptions& options) override { return events_.trainer().evaluate(options); }
  LossOutput compute_loss(const Batch& batch) override {
    return events_.trainer().compute_loss_in_precision(batch, events_.core().items_in(batch.labels));
  }
  void save_model(const std::filesystem::path& directory) const override {
    events_.core().save_model(directory);
  }
  MemoryEstimate memory_estimate(const MemoryEstimateOptions& options) override {
    return estimate_memory(events_.trainer(), options);
  }
  void log_samples(const std::vector<Sample>& samples) override { events_.trainer().log_samples(samples); }
  void pause() override { events_.core().remote.pause(); }
  void resume() override { events_.core().remote.resume(); }
  bool cancel(std::string_view reason) override { return events_.core().remote.cancel(reason); }
  std::vector<std::string_view> callback_names() override { return events_.callback_names(); }
  std::vector<EventHandlers> event_handlers() const override { return events_.trainer().event_handlers(); }
  TimeByPhase time_by_phase() const override { return events_.core().phase_clock.times(); }
  const TrainerOptions& options() const override { return events_.core().options; }
  Communicator& communicator() override { return events_.core().ranks.reachable(); }
  const TrainerRunConfig& run_config() const override { return events_.core().run_config; }

 private:
  Events& events_;
};

}  // namespace etude::inline v0
