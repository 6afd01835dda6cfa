#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "etude/study/trial.hpp"

namespace etude::inline v0 {

/// How much each hyperparameter has to do with being among the best tenth of the complete trials, from 0 to
/// 1; the sum is 1. It is the Pearson divergence between two densities of the hyperparameter's values, of the
/// best trials and of all (Watanabe, Bansal, Hutter 2023, "PED-ANOVA", arXiv:2304.10255), summed over the
/// ranges that it has in different trials if it is conditional (arXiv:2601.20800, theorem 4.2). These are the
/// numbers of `optuna.importance.get_param_importances` with Optuna 5's default, PedAnovaImportanceEvaluator.
///
/// With several objectives, `objective` is the one that counts, and `direction` is its direction. Trials
/// whose value isn't finite don't count. All are equally important if nothing distinguishes them, such as
/// with less than two trials; without a complete trial the result is empty.
std::map<std::string, double> param_importances(const std::vector<FrozenTrial>& trials,
                                                StudyDirection direction, std::size_t objective = 0);

}  // namespace etude::inline v0
