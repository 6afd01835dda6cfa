#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "etude/study/trial.hpp"

namespace etude::inline v0 {

/// How strongly each hyperparameter decides whether a trial is among the best tenth of the complete trials,
/// from 0 to 1; the importances sum to 1. It is the Pearson divergence between the density of the
/// hyperparameter's values in the best trials and their density in all trials (Watanabe, Bansal, Hutter 2023,
/// "PED-ANOVA", arXiv:2304.10255), summed over the hyperparameter's different ranges if it is conditional
/// (arXiv:2601.20800, theorem 4.2). The results equal those of `optuna.importance.get_param_importances` with
/// Optuna 5's default, PedAnovaImportanceEvaluator.
///
/// With several objectives, `objective` is the index of the one to use, and `direction` is its direction.
/// Trials whose value isn't finite are ignored. All importances are equal if nothing distinguishes the
/// hyperparameters, for example with fewer than two trials; without a complete trial the result is empty.
std::map<std::string, double> param_importances(const std::vector<FrozenTrial>& trials,
                                                StudyDirection direction, std::size_t objective = 0);

}  // namespace etude::inline v0
