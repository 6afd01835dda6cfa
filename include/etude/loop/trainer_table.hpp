#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
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

/// Expands to `method(name, signature)` for each method that the class of a trainer may override.
// clang-format off
#define ETUDE_DETAIL_FOR_METHODS(method)                                                           \
  method(get_train_dataloader, std::unique_ptr<DataLoader>())                                      \
  method(get_eval_dataloader, std::unique_ptr<DataLoader>(const Dataset&))                         \
  method(create_optimizer, std::unique_ptr<Optimizer>())                                           \
  method(create_scheduler, std::unique_ptr<LRScheduler>(std::int64_t max_steps))                   \
  method(compute_loss, LossOutput(const Batch&, std::optional<double> num_items_in_batch))         \
  method(floating_point_ops, double(const Batch&))                                                 \
  method(training_step, torch::Tensor(Batch&))                                                     \
  method(prediction_step,                                                                          \
         PredictionStepOutput(const Batch&, const std::vector<std::string>& ignore_keys))          \
  method(log, void(Metrics&))                                                                      \
  method(save_checkpoint, std::filesystem::path())                                                 \
  method(save_state, void())                                                                       \
  method(evaluate, Metrics(const EvaluateOptions&))
// clang-format on

namespace detail {

template <class Signature>
struct method_pointer;
template <class Result, class... Args>
struct method_pointer<Result(Args...)> {
  using type = Result (*)(TrainerRef, Args...);
};

}  // namespace detail

/// Pointers to functions that call those methods by name.
struct MethodTable {
#define ETUDE_DETAIL_POINTER(name, ...) detail::method_pointer<__VA_ARGS__>::type name;
  ETUDE_DETAIL_FOR_METHODS(ETUDE_DETAIL_POINTER)
#undef ETUDE_DETAIL_POINTER
};

/// Calls a trainer's methods, or its class's overrides of them.
class TrainerMethods {
 public:
  TrainerMethods(TrainerRef trainer, const MethodTable& table) : trainer_(trainer), table_(&table) {}

#define ETUDE_DETAIL_CALL(name, ...)                            \
  template <class... Args>                                      \
  auto name(Args&&... args) const {                             \
    return table_->name(trainer_, std::forward<Args>(args)...); \
  }
  ETUDE_DETAIL_FOR_METHODS(ETUDE_DETAIL_CALL)
#undef ETUDE_DETAIL_CALL

 private:
  TrainerRef trainer_;
  const MethodTable* table_;
};

/// Everything that the loop needs to know about a trainer's type, as constants.
struct TrainerTable {
  EventTable events;
  MethodTable methods;
  std::string_view name;  ///< of the trainer's class
  /// How that class itself handles each event of the vocabulary; null if it handles none.
  const detail::Handling* own_handling;
  /// See `AnyTrainer::event_handlers`; null if it knows only the events of the vocabulary.
  std::vector<EventHandlers> (*event_handlers)(TrainerRef);
};

namespace detail {

/// The methods of `Derived`, for a TrainerRef to its base `Base`.
template <class Base, class Derived>
consteval MethodTable methods_of() {
  return {
#define ETUDE_DETAIL_CALLER(name, ...)                                                           \
  []<class... Args>(TrainerRef trainer, Args... args) {                                          \
    using Result = std::invoke_result_t<method_pointer<__VA_ARGS__>::type, TrainerRef, Args...>; \
    return static_cast<Result>(static_cast<Derived&>(trainer.as<Base>()).name(args...));         \
  },
      ETUDE_DETAIL_FOR_METHODS(ETUDE_DETAIL_CALLER)
#undef ETUDE_DETAIL_CALLER
  };
}

}  // namespace detail

}  // namespace etude::inline v0
