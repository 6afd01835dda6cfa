#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "common/folder.hpp"
#include "common/quick_files.hpp"
#include "common/silence.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/trainer_state.hpp"

namespace toy {

/// A run of 8 steps in 2 epochs, with an evaluation and a checkpoint after every second step.
struct TrainedRun {
  Folder folder;
  std::string path = folder / "run";
  etude::TrainerState state;
  float weight = 0, bias = 0;

  explicit TrainedRun(double learning_rate = 0.1) {
    auto args = arguments();
    save_to(path, args, 2);
    args.num_train_epochs = 2;
    args.learning_rate = learning_rate;
    args.eval_strategy = etude::IntervalStrategy::steps;
    args.eval_steps = 2;
    args.logging_strategy = etude::IntervalStrategy::steps;
    args.logging_steps = 2;
    args.metric_for_best_model = "loss";
    auto given = options(args, 4, 3);
    given.file_system = std::make_shared<QuickFiles>();
    const Silence silence;
    etude::Trainer trainer(given, etude::EarlyStoppingCallback{.early_stopping_patience = 9});
    trainer.train();
    trainer.save_state();
    state = trainer.state();
    const auto& line = trainer.model().as<LineImpl>();
    weight = line.weight.item<float>();
    bias = line.bias.item<float>();
  }

  std::filesystem::path checkpoint(int step) const {
    return std::filesystem::path(path) / ("checkpoint-" + std::to_string(step));
  }
};

}  // namespace toy
