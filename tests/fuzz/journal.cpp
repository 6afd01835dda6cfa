// Opens a study's journal, asks it for a trial, and shows its trials.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/study/importance.hpp"
#include "etude/study/report.hpp"
#include "etude/study/report_page.hpp"
#include "etude/study/study.hpp"

namespace {

/// In memory where there is such a folder, since each record waits for its disk.
const std::string journal =
    (std::filesystem::exists("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path().string()) +
    ("/fuzz-journal-" + std::to_string(::getpid()));

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::ofstream(journal, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    etude::Study study({.journal = journal, .pruner = std::make_shared<etude::MedianPruner>()});
    const auto trials = study.trials();
    const std::vector directions{etude::StudyDirection::minimize};
    etude::format_trials(trials, directions);
    etude::param_importances(trials, directions[0]);
    etude::detail::report_page("etude", trials, directions);
    for (const auto& trial : trials)
      for (const auto& [name, number] : trial.params) trial.param(name);
    study.best_trials();
    if (trials.size() > 100) return 0;
    auto trial = study.ask();
    trial.suggest_float("lr", {.low = 1e-4, .high = 1, .log = true});
    trial.suggest_int("layers", {.low = 1, .high = 4});
    trial.suggest_categorical("optim", std::vector<std::string>{"sgd", "adam"});
    trial.report(1, 1);
    trial.should_prune();
    study.tell(trial, 1);
  } catch (const etude::Error&) {
  }
  std::filesystem::remove(journal);
  return 0;
}
