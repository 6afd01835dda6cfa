// study_page KIND FILE: writes the page of a study, whose numbers are functions of the trial's number.

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/small_study.hpp"
#include "etude/study/report.hpp"

namespace {

using etude::FrozenTrial;
using etude::StudyDirection;
using etude::TrialState;

using toy::trial_of;

std::vector<FrozenTrial> many(std::int64_t count, std::size_t objectives) {
  std::vector<FrozenTrial> trials;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(i);
    const double rate = std::pow(10, -5 + 4 * std::fmod(x * 0.618034, 1.0));
    const double layers = static_cast<double>(1 + i % 4);
    const double loss = 0.1 + std::pow(std::log10(rate) + 2.7, 2) / 10 + 0.05 * layers / (1 + x / 40) +
                        0.02 * std::fmod(x * 0.7548, 1.0);
    const auto state = i % 7 == 3    ? TrialState::pruned
                       : i % 31 == 9 ? TrialState::fail
                                     : TrialState::complete;
    std::vector<double> values;
    if (state == TrialState::complete) values.push_back(loss);
    if (state == TrialState::complete && objectives == 2) values.push_back(0.2 / loss + layers);
    trials.push_back(trial_of(i, state, values,
                              {{"lr", rate}, {"layers", layers}, {"optim", static_cast<double>(i * 7 % 4)}}));
    if (i % 3 == 0) trials.back().params.erase("layers");
    trials.back().datetime_start = 1.7e9 + 60 * x;
    trials.back().datetime_complete = 1.7e9 + 60 * x + 45 + layers;
    for (std::int64_t step = 1; objectives == 1 && step <= (state == TrialState::pruned ? 4 : 10); ++step)
      trials.back().intermediate_values[step] = loss + 0.5 / static_cast<double>(step);
  }
  return trials;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string_view kind = argv[1];
  const std::string evil =
      "</title></script><script>document.title='hacked'</script><img onerror=alert(1)>\"'";
  const auto link = [](const FrozenTrial& trial) {
    return trial.number == 0 ? std::string("a\"b/report.html") : std::string();
  };
  if (kind == "small")
    etude::write_report(argv[2], "small", toy::small_study(), {StudyDirection::minimize}, link);
  if (kind == "many") etude::write_report(argv[2], "many", many(120, 1), {StudyDirection::minimize});
  if (kind == "pareto")
    etude::write_report(argv[2], "pareto", many(60, 2), {StudyDirection::minimize, StudyDirection::maximize});
  if (kind == "large") etude::write_report(argv[2], "large", many(10000, 1), {StudyDirection::minimize});
  if (kind == "odd") {
    auto trials = toy::odd_study();
    trials[7].params[evil] = 0;
    trials[7].distributions[evil] = etude::Choices{{evil, "\xFF\x01&amp;"}};
    etude::write_report(argv[2], evil, trials, {StudyDirection::minimize});
  }
  if (kind == "empty") etude::write_report(argv[2], "empty", {}, {});
  return 0;
}
