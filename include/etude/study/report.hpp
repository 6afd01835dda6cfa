#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "etude/study/trial.hpp"

namespace etude::inline v0 {

/// The trials as a table for a terminal of 110 columns, the best first; those that no other beats in all
/// objectives are marked with "*". Long names and values are cut; hyperparameters that don't fit, the least
/// important ones, are named below it. Nothing in a study can control the terminal.
std::string format_trials(const std::vector<FrozenTrial>& trials,
                          const std::vector<StudyDirection>& directions);

/// Writes a page about a study, which a browser shows without a network: counts and the best trial, the
/// values over time or the Pareto front of two objectives, hyperparameters as parallel coordinates, their
/// importances, curves of reported values, and the trials as a table. At most 1,000 trials are drawn, among
/// them the best, and the page says so. `link` gives the address of a trial's own page, for the table; empty
/// for none. The file is replaced atomically. Throws CheckpointError with the path and the reason if it can't
/// be written.
void write_report(const std::filesystem::path& page, const std::string& study_name,
                  const std::vector<FrozenTrial>& trials, const std::vector<StudyDirection>& directions,
                  const std::function<std::string(const FrozenTrial&)>& link = {});

}  // namespace etude::inline v0
