#include "etude/trainer.hpp"

#include <filesystem>
#include <string_view>
#include <vector>

#include "etude/any_trainer.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/trainer_methods.hpp"
#include "etude/tune/memory_estimate.hpp"

namespace etude::inline v0 {

namespace {

/// A trainer of any type, for functions that take the trainer's type as a template argument.
struct TrialTrainer {
  EventSource& events;

  Context context() { return events.core().context(); }
  std::unique_ptr<DataLoader> get_train_dataloader() { return events.trainer().get_train_dataloader(); }
};

}  // namespace

Metrics AnyTrainer::evaluate(const EvaluateOptions& options) { return events_.trainer().evaluate(options); }

LossOutput AnyTrainer::compute_loss(const Batch& batch) {
  return detail::compute_loss_in_precision(events_, batch, events_.core().items_in(batch.labels));
}

void AnyTrainer::save_model(const std::filesystem::path& directory) const {
  events_.core().save_model(directory);
}

MemoryEstimate AnyTrainer::memory_estimate(const MemoryEstimateOptions& options) {
  TrialTrainer trainer{events_};
  return estimate_memory(trainer, options);
}

void AnyTrainer::log_samples(const std::vector<Sample>& samples) { detail::log_samples(events_, samples); }

void AnyTrainer::pause() { events_.core().remote.pause(); }

void AnyTrainer::resume() { events_.core().remote.resume(); }

bool AnyTrainer::cancel(std::string_view reason) { return events_.core().remote.cancel(reason); }

std::vector<std::string_view> AnyTrainer::callback_names() { return events_.callback_names(); }

std::vector<EventHandlers> AnyTrainer::event_handlers() const { return events_.event_handlers(); }

TimeByActivity AnyTrainer::time_by_activity() const { return events_.core().activity_clock.times(); }

const TrainerOptions& AnyTrainer::options() const { return events_.core().options; }

const TrainerRunConfig& AnyTrainer::run_config() const { return events_.core().run_config; }

Communicator& AnyTrainer::communicator() { return events_.core().ranks.reachable(); }

}  // namespace etude::inline v0
