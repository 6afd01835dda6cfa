#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "etude/data/data_loader.hpp"
#include "etude/loop/dry_run.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Which point of the curve to suggest; the names are fastai's.
///
/// - `valley`: halfway down the longest chain of decreasing losses, ignoring the rises in between.
/// - `steep`: where the loss falls fastest.
/// - `minimum`: a tenth of the rate at which the loss is lowest.
ETUDE_ENUM(LearningRateSuggestion, valley, steep, minimum);

/// The defaults are fastai's.
struct LearningRateFinderOptions {
  ETUDE_STRUCT(LearningRateFinderOptions, (double, start_lr, "the first learning rate" | above(0), 1e-7),
               (double, end_lr, "the last learning rate, above start_lr" | above(0), 10),
               (std::int64_t, num_it,
                "update steps from one to the other, each as much larger than the one before" | at_least(2),
                100),
               (double, beta, "weight of the previous step in the smoothed loss" | at_least(0).below(1),
                0.98),
               (double, stop_factor,
                "ends when the smoothed loss is this many times its best; 0 never does; a non-finite loss "
                "always does" |
                    above(1).or_just(0),
                4),
               (LearningRateSuggestion, suggestion, "the point of the curve to suggest",
                LearningRateSuggestion::valley));
  /// Where to save the curve as SVG; if empty, it isn't saved.
  std::filesystem::path plot = {};
};

/// The curve of a learning-rate range test.
struct LearningRateCurve {
  std::vector<double> learning_rates = {};
  std::vector<double> losses = {};    ///< the loss of the step at each rate
  std::vector<double> smoothed = {};  ///< the same, smoothed
  bool diverged = false;              ///< It ended before the last rate.
  std::int64_t num_it = 0;            ///< Planned steps; 0 means as many as there are.
  LearningRateSuggestion suggestion = LearningRateSuggestion::valley;

  /// The suggested learning rate; unset if the curve is too short, or never falls.
  std::optional<double> suggested() const { return suggested(suggestion); }
  /// The rate that the given method suggests. Like fastai, it ignores the first tenth and the last five
  /// steps.
  std::optional<double> suggested(LearningRateSuggestion way) const;

  /// The smoothed curve as a text chart for a terminal, with the suggestions below.
  std::string text(int width = 72, int height = 16) const;
  /// The curve as an SVG image, with the suggestions marked.
  std::string svg() const;
};

namespace detail {
void check(const LearningRateFinderOptions& options);
LearningRateCurve find_learning_rate(TrainingDryRun& dry_run, const DataLoader& loader,
                                     std::int64_t group_size, const LearningRateFinderOptions& options);
void draw(const LearningRateCurve& curve, const std::filesystem::path& path);
}  // namespace detail

/// The learning-rate range test (Smith 2015; fastai's `lr_find`): trains for a few steps while the learning
/// rate grows exponentially, and records where the loss falls and where it explodes. It uses the trainer's
/// loaders, loss, optimizer and clipping, raises no event, and restores everything: weights, buffers,
/// optimizer, random numbers, modes. Call it between trainings, not during one:
///
///     const auto curve = find_learning_rate(trainer);
///     fmt::print("{}", curve.text());
///     args.learning_rate = curve.suggested().value();
///
/// Throws ArgumentError for invalid options, CheckpointError for a custom optimizer that can't be restored,
/// and whatever the model and the data throw, after restoring everything.
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

}  // namespace etude::inline v0
