#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/trainer_options.hpp"

namespace etude {

/// A trainer, whatever its type: what a callback may have the one that raised its event do at once.
class AnyTrainer {
 public:
  /// Evaluates here and now, and returns the metrics. Its events come as always, also to the callback that
  /// asks; what it finds doesn't count when the best model of a training is looked for.
  virtual Metrics evaluate(const EvaluateOptions& options = {}) = 0;

  /// The loss of a batch as the trainer computes it, with the model's outputs, and with gradients unless the
  /// caller has turned them off. Of labels that count as items it counts those of this batch.
  virtual LossOutput compute_loss(const Batch& batch) = 0;

  /// Writes the weights, and the processing class, to a folder.
  virtual void save_model(const std::filesystem::path& directory) const = 0;

  /// The types of all callbacks, without their namespaces.
  virtual std::vector<std::string_view> callback_names() = 0;

  /// What the trainer was made of.
  virtual const TrainerOptions& options() const = 0;

  /// The facts of the run; empty before the first training.
  virtual const TrainerRunConfig& run_config() const = 0;

 protected:
  ~AnyTrainer() = default;
};

/// `Trainer` as an AnyTrainer.
template <class Trainer>
class AnyTrainerOf final : public AnyTrainer {
 public:
  explicit AnyTrainerOf(Trainer& trainer) : trainer_(trainer) {}

  Metrics evaluate(const EvaluateOptions& options) override { return trainer_.derived().evaluate(options); }
  LossOutput compute_loss(const Batch& batch) override {
    return trainer_.derived().compute_loss(batch, trainer_.items_in(batch.labels));
  }
  void save_model(const std::filesystem::path& directory) const override {
    trainer_.core_.save_model(directory);
  }
  std::vector<std::string_view> callback_names() override { return trainer_.callback_names(); }
  const TrainerOptions& options() const override { return trainer_.core_.options; }
  const TrainerRunConfig& run_config() const override { return trainer_.core_.run_config; }

 private:
  Trainer& trainer_;
};

}  // namespace etude
