#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "etude/data/data_loader.hpp"
#include "etude/loop/dry_run.hpp"
#include "etude/reflect/enum.hpp"

namespace etude {

/// Which point of the curve is suggested; the names are fastai's.
///
/// - `valley`: half way down the longest chain of ever lower losses, with the rises between left out.
/// - `steep`: where the loss falls fastest.
/// - `minimum`: a tenth of the rate at which the loss is lowest.
ETUDE_ENUM(LearningRateSuggestion, valley, steep, minimum);

/// The defaults are fastai's.
struct LearningRateFinderOptions {
  double start_lr = 1e-7;
  double end_lr = 10;
  std::int64_t num_it =
      100;             ///< Update steps from one to the other, each as much larger than the one before.
  double beta = 0.98;  ///< How much of the loss that is watched is that of the step before.
  /// Ends where the loss is that many times its best; 0 never does. A loss that isn't finite always ends it.
  double stop_factor = 4;
  LearningRateSuggestion suggestion = LearningRateSuggestion::valley;
  /// Where the curve is drawn to, as SVG; empty is nowhere.
  std::filesystem::path plot = {};
};

/// The curve of a learning-rate range test.
struct LearningRateCurve {
  std::vector<double> learning_rates = {};
  std::vector<double> losses = {};    ///< of the step at each rate
  std::vector<double> smoothed = {};  ///< the same, smoothed
  bool diverged = false;              ///< It ended before the last rate.
  std::int64_t num_it = 0;            ///< Steps that were planned; 0 is as many as there are.
  LearningRateSuggestion suggestion = LearningRateSuggestion::valley;

  /// The rate that was asked for; unset if the curve is too short, or never falls.
  std::optional<double> suggested() const { return suggested(suggestion); }
  /// The one by another way. fastai leaves out the first tenth and the last five steps, and so does this.
  std::optional<double> suggested(LearningRateSuggestion way) const;

  /// The smoothed curve as a chart of letters, with the suggestions below, for a terminal.
  std::string text(int width = 72, int height = 16) const;
  /// The curve as a picture, with the suggestions marked.
  std::string svg() const;
};

namespace detail {
void check(const LearningRateFinderOptions& options);
LearningRateCurve find_learning_rate(TrainingDryRun& dry_run, const DataLoader& loader,
                                     std::int64_t group_size, const LearningRateFinderOptions& options);
void draw(const LearningRateCurve& curve, const std::filesystem::path& path);
}  // namespace detail

/// The learning-rate range test (Smith 2015; fastai's `lr_find`): trains for a few steps while the learning
/// rate grows exponentially, and sees where the loss falls and where it explodes. Uses the trainer's own
/// loaders, loss, optimizer and clipping, raises no event, and leaves everything as it was: weights, buffers,
/// optimizer, random numbers, modes. Between trainings, not in one:
///
///     const auto curve = find_learning_rate(trainer);
///     fmt::print("{}", curve.text());
///     args.learning_rate = curve.suggested().value();
///
/// Throws ArgumentError for options that can't be, CheckpointError for an optimizer of the user's that can't
/// be put back, and what the model and the data throw, with everything put back before.
template <class Trainer>
LearningRateCurve find_learning_rate(Trainer& trainer, const LearningRateFinderOptions& options = {}) {
  detail::check(options);
  LearningRateCurve curve;
  {
    TrainingDryRun dry_run(trainer);
    const auto loader = trainer.get_train_dataloader();
    curve = detail::find_learning_rate(dry_run, *loader, trainer.args().gradient_accumulation_steps, options);
    dry_run.end();
  }
  if (!options.plot.empty()) detail::draw(curve, options.plot);
  return curve;
}

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/tune/impl/learning_rate_finder.ipp"
#endif
