#include "etude/loop/run_settings.hpp"

#include <algorithm>

#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/libtorch/memory.hpp"
#include "etude/loop/options.hpp"

namespace etude::inline v0 {

StepSharing RunSettings::step_sharing() const {
  if (overrides.steps_by_hand) return StepSharing::by_hand;
  const bool has_losses = !options.optimizers.empty() && options.optimizers.front().second.compute_loss;
  return has_losses ? StepSharing::in_turn : StepSharing::together;
}

std::int64_t RunSettings::total_train_batch_size() const {
  return args.per_device_train_batch_size * ranks.world_size();
}

double RunSettings::padded(std::int64_t batches) const {
  return static_cast<double>(batches) * static_cast<double>(total_train_batch_size());
}

std::unique_ptr<DataLoader> RunSettings::make_train_dataloader() const {
  return std::make_unique<DataLoader>(options.train_dataset, train_loader_options(options, args));
}

std::unique_ptr<DataLoader> RunSettings::make_eval_dataloader(const Dataset& dataset) const {
  return std::make_unique<DataLoader>(dataset, eval_loader_options(options, args, dataset));
}

bool RunSettings::finds_batch_size(const std::exception_ptr& error) const {
  // If one of several processes handled this alone, the others would wait for it forever.
  return is_too_large(error) && (ranks.world_size() == 1 || ranks.memory_is_agreed);
}

bool RunSettings::is_too_large(const std::exception_ptr& error) const {
  return args.auto_find_batch_size && args.per_device_train_batch_size > 1 && is_out_of_memory(error);
}

void RunSettings::shrink_batches() {
  auto& size = args.per_device_train_batch_size;
  const auto smaller = std::max<std::int64_t>(size * 9 / 10, 1);
  message(args, LogLevel::warning,
          "memory ran out with a per_device_train_batch_size of {}: training restarts with {}", size,
          smaller);
  size = smaller;
}

}  // namespace etude::inline v0
