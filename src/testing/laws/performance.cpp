#include "etude/testing/laws/performance.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/reflect/json.hpp"
#include "etude/testing/laws/compare.hpp"
#include "etude/testing/laws/problem.hpp"

namespace etude::inline v0::laws::detail {

TemporaryFolder::TemporaryFolder() {
  auto name = (std::filesystem::temp_directory_path() / "etude-laws-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw Error(fmt::format("{} can't be created", name));
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

TrainerOptions prepared(const Options& options, const Setting& setting, const std::shared_ptr<Stage>& stage) {
  std::filesystem::create_directories(setting.folder);
  auto result = problem(setting.folder, setting.saves, [stage](bool training) { stage->forward(training); });
  if (options.prepare) options.prepare(result);
  return result;
}

Performance::Performance(const Trial& trial, const Options& options, const Setting& setting)
    : setting_(setting), trainer_(prepared(options, setting, stage_), Front{stage_}) {
  for (int i = 0; i < setting.subjects; ++i) subjects_.push_back(trial.add(trainer_, setting.folder));
  trainer_.add_callback(Behind{stage_});
  trainer_.call_event(InitEnd{trainer_.context()});  // it missed the first one
}

Run Performance::train(const Disturbance& disturbance) {
  stage_->begin(disturbance);
  stage_->inside = setting_.inside;
  stage_->keep = setting_.keep;
  std::string error;
  bool came_out = false;
  try {
    trainer_.train({.resume_from_checkpoint = setting_.resume});
  } catch (const Disruption&) {
    came_out = true;
  } catch (...) {
    error = message_of(std::current_exception());
  }
  auto run = std::move(stage_->run);
  run.error = std::move(error);
  run.came_out = came_out;
  run.moments.push_back(moment_of(trainer_.context(), "the end"));
  run.logs = to_json_value(trainer_.state().log_history);
  for (const auto& subject : subjects_) run.states.push_back(subject->state());
  collect_errors(run.breaches);
  if (run.error.empty() && !came_out && disturbance.way != Disturbance::Way::throws)
    if (const auto found = difference_among_processes())
      run.breaches.push_back("not as in the first process, " + *found);
  replace_folder(run.logs, setting_.folder);
  for (auto& state : run.states) replace_folder(state, setting_.folder);
  return run;
}

std::vector<std::string> Performance::evaluate() {
  stage_->begin({});
  const auto begun = moment_of(trainer_.context(), "the begin");
  std::string error;
  try {
    trainer_.evaluate();
    trainer_.predict(unlabelled());
  } catch (...) {
    error = message_of(std::current_exception());
  }
  auto breaches = std::move(stage_->run.breaches);
  collect_errors(breaches);
  if (breaches.empty() && !error.empty()) breaches.push_back("it ends with: " + error);
  if (const auto changed = difference(begun, moment_of(trainer_.context(), "the end")))
    breaches.push_back("it changes " + *changed);
  return breaches;
}

Difference Performance::difference_among_processes() {
  const auto e = trainer_.context();
  std::vector<std::pair<std::string, torch::Tensor>> own, first;
  for (const auto& [name, parameter] : e.model.named_parameters()) {
    own.emplace_back(name, parameter.detach());
    first.emplace_back(name, parameter.detach().clone());
    e.trainer.communicator().broadcast(first.back().second);
  }
  return difference(first, own);
}

void Performance::collect_errors(std::vector<std::string>& into) {
  for (const auto& subject : subjects_)
    for (auto& error : std::exchange(subject->errors, {})) into.push_back(std::move(error));
}

}  // namespace etude::inline v0::laws::detail
