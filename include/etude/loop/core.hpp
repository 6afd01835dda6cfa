#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "etude/data/data_loader.hpp"
#include "etude/events.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/metrics/running_mean.hpp"
#include "etude/model.hpp"
#include "etude/optim/lr_scheduler.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/trainer_options.hpp"

namespace etude {

/// What the loops work on: everything of a trainer that doesn't depend on its type.
struct TrainerCore {
  TrainerOptions options;
  TrainingArguments args;  ///< those of the options, with what they leave open decided
  torch::Device device = torch::kCPU;
  Model model;
  TrainerState state;
  TrainerControl control;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<LRScheduler> lr_scheduler;
  std::unique_ptr<DataLoader> train_dataloader;
  const DataLoader* eval_dataloader = nullptr;
  PendingLogs pending_logs;
  bool training = false;
  bool trained_before = false;

  // Of the accumulation group under way.
  std::int64_t group_size = 1;
  std::optional<double> num_items_in_batch;

  // Since the last log.
  RunningMean loss;
  torch::Tensor grad_norm;
  double learning_rate = 0;
  std::int64_t last_logged_step = 0;
  RunningMean total_loss{true};  ///< of the update steps of this call that are logged already

  Context context() {
    return {args,
            state,
            control,
            model,
            optimizer.get(),
            lr_scheduler.get(),
            train_dataloader.get(),
            eval_dataloader,
            options.processing_class ? &options.processing_class : nullptr,
            pending_logs};
  }

  bool stopping() const { return control.should_training_stop || control.should_epoch_stop; }
};

}  // namespace etude
