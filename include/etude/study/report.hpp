#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "etude/study/trial.hpp"

namespace etude::inline v0 {

/// Returns the trials as a table for a terminal of 110 columns, best first; "*" marks trials that no other
/// beats in all objectives. Long names and values are cut; the least important hyperparameters are only named
/// below the table if they don't fit. Control characters in a study never reach the terminal.
std::string format_trials(const std::vector<FrozenTrial>& trials,
                          const std::vector<StudyDirection>& directions);

/// Writes an HTML page about a study that works offline: counts and the best trial, the values over time or
/// the Pareto front of two objectives, hyperparameters as parallel coordinates, their importances, curves of
/// reported values, and the trials as a table. At most 1,000 trials are drawn, including the best; the page
/// says so if some are left out. `link` returns the address of a trial's page, which the table links to, or
/// an empty text. The file is replaced atomically. Throws CheckpointError with the path and the reason if it
/// can't be written.
void write_report(const std::filesystem::path& page, const std::string& study_name,
                  const std::vector<FrozenTrial>& trials, const std::vector<StudyDirection>& directions,
                  const std::function<std::string(const FrozenTrial&)>& link = {});

}  // namespace etude::inline v0
