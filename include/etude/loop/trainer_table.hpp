#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/dispatch/describe.hpp"
#include "etude/dispatch/event_table.hpp"
#include "etude/events.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/optim/lr_scheduler.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/trainer_options.hpp"

namespace etude::inline v0 {

using EventTable = decltype(detail::table_of_all(Vocabulary{}));

/// The methods that the class of a trainer may override, as functions that call them by name.
struct MethodTable {
  std::unique_ptr<DataLoader> (*get_train_dataloader)(TrainerRef);
  std::unique_ptr<DataLoader> (*get_eval_dataloader)(TrainerRef, const Dataset&);
  std::unique_ptr<Optimizer> (*create_optimizer)(TrainerRef);
  std::unique_ptr<LRScheduler> (*create_scheduler)(TrainerRef, std::int64_t max_steps);
  LossOutput (*compute_loss)(TrainerRef, const Batch&, std::optional<double> num_items_in_batch);
  double (*floating_point_ops)(TrainerRef, const Batch&);
  torch::Tensor (*training_step)(TrainerRef, Batch&);
  PredictionStepOutput (*prediction_step)(TrainerRef, const Batch&,
                                          const std::vector<std::string>& ignore_keys);
  void (*log)(TrainerRef, Metrics&);
  std::filesystem::path (*save_checkpoint)(TrainerRef);
  void (*save_state)(TrainerRef);
  Metrics (*evaluate)(TrainerRef, const EvaluateOptions&);
};

/// Calls a trainer's methods, or its class's overrides of them.
class TrainerMethods {
 public:
  TrainerMethods(TrainerRef trainer, const MethodTable& table) : trainer_(trainer), table_(&table) {}

  std::unique_ptr<DataLoader> get_train_dataloader() const { return table_->get_train_dataloader(trainer_); }
  std::unique_ptr<DataLoader> get_eval_dataloader(const Dataset& dataset) const {
    return table_->get_eval_dataloader(trainer_, dataset);
  }
  std::unique_ptr<Optimizer> create_optimizer() const { return table_->create_optimizer(trainer_); }
  std::unique_ptr<LRScheduler> create_scheduler(std::int64_t max_steps) const {
    return table_->create_scheduler(trainer_, max_steps);
  }
  LossOutput compute_loss(const Batch& batch, std::optional<double> num_items_in_batch) const {
    return table_->compute_loss(trainer_, batch, num_items_in_batch);
  }
  double floating_point_ops(const Batch& batch) const { return table_->floating_point_ops(trainer_, batch); }
  torch::Tensor training_step(Batch& batch) const { return table_->training_step(trainer_, batch); }
  PredictionStepOutput prediction_step(const Batch& batch,
                                       const std::vector<std::string>& ignore_keys) const {
    return table_->prediction_step(trainer_, batch, ignore_keys);
  }
  void log(Metrics& logs) const { table_->log(trainer_, logs); }
  std::filesystem::path save_checkpoint() const { return table_->save_checkpoint(trainer_); }
  void save_state() const { table_->save_state(trainer_); }
  Metrics evaluate(const EvaluateOptions& options) const { return table_->evaluate(trainer_, options); }

 private:
  TrainerRef trainer_;
  const MethodTable* table_;
};

/// All that the loop needs of a trainer's type, as constants.
struct TrainerTable {
  EventTable events;
  MethodTable methods;
  std::string_view name;  ///< of the trainer's class
  /// How that class itself handles each event of the vocabulary; null if it handles none.
  const detail::Handling* own_handling;
  /// See `AnyTrainer::event_handlers`; null if it knows no events but those of the vocabulary.
  std::vector<EventHandlers> (*event_handlers)(TrainerRef);
};

namespace detail {

/// The methods of `Derived`, for a TrainerRef to its base `Base`.
template <class Base, class Derived>
consteval MethodTable methods_of() {
  return {
      [](TrainerRef t) -> std::unique_ptr<DataLoader> {
        return static_cast<Derived&>(t.as<Base>()).get_train_dataloader();
      },
      [](TrainerRef t, const Dataset& dataset) -> std::unique_ptr<DataLoader> {
        return static_cast<Derived&>(t.as<Base>()).get_eval_dataloader(dataset);
      },
      [](TrainerRef t) -> std::unique_ptr<Optimizer> {
        return static_cast<Derived&>(t.as<Base>()).create_optimizer();
      },
      [](TrainerRef t, std::int64_t max_steps) -> std::unique_ptr<LRScheduler> {
        return static_cast<Derived&>(t.as<Base>()).create_scheduler(max_steps);
      },
      [](TrainerRef t, const Batch& batch, std::optional<double> num_items) -> LossOutput {
        return static_cast<Derived&>(t.as<Base>()).compute_loss(batch, num_items);
      },
      [](TrainerRef t, const Batch& batch) -> double {
        return static_cast<Derived&>(t.as<Base>()).floating_point_ops(batch);
      },
      [](TrainerRef t, Batch& batch) -> torch::Tensor {
        return static_cast<Derived&>(t.as<Base>()).training_step(batch);
      },
      [](TrainerRef t, const Batch& batch, const std::vector<std::string>& keys) -> PredictionStepOutput {
        return static_cast<Derived&>(t.as<Base>()).prediction_step(batch, keys);
      },
      [](TrainerRef t, Metrics& logs) { static_cast<Derived&>(t.as<Base>()).log(logs); },
      [](TrainerRef t) -> std::filesystem::path {
        return static_cast<Derived&>(t.as<Base>()).save_checkpoint();
      },
      [](TrainerRef t) { static_cast<void>(static_cast<Derived&>(t.as<Base>()).save_state()); },
      [](TrainerRef t, const EvaluateOptions& options) -> Metrics {
        return static_cast<Derived&>(t.as<Base>()).evaluate(options);
      },
  };
}

}  // namespace detail

}  // namespace etude::inline v0
