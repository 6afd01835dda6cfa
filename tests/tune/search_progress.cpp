#include <doctest/doctest.h>

#include <string>

#include "common/folder.hpp"
#include "common/screen.hpp"
#include "common/search.hpp"
#include "common/toy.hpp"
#include "common/written.hpp"
#include "etude/tune/hyperparameter_search.hpp"

namespace tune_search_progress_test {

std::string two_trials(unsigned short columns) {
  const toy::Folder folder;
  auto args = toy::search_arguments(folder);
  args.disable_tqdm = false;
  args.log_level = etude::LogLevel::warning;
  return toy::written(columns, [&](int) {
    etude::hyperparameter_search(toy::line_trainer, {.n_trials = 2, .hp_space = toy::rates}, args);
  });
}

TEST_CASE("on a terminal the trials stand before the training, whose bar goes with it") {
  const auto text = two_trials(160);
  CHECK(text.find("\rtrial 1/2   0% › train   0% ") != text.npos);
  CHECK(text.find("\rtrial 2/2  50%  best ") != text.npos);
  int trials = 0, bars = 0;
  const auto lines = toy::screen(text, 160);
  for (const auto& line : lines) {
    trials += line.starts_with("trial 0: ") || line.starts_with("trial 1: ");
    bars += line.starts_with("train ") || line.starts_with("eval ");
  }
  CHECK(trials == 2);
  CHECK(bars == 0);
  REQUIRE(lines.size() > 2);
  CHECK(lines[lines.size() - 2].starts_with("trial 2/2 100% █"));
  CHECK(lines.back().empty());
}

TEST_CASE("in a pipe each trial has its line, and there is no bar of trials") {
  const auto text = two_trials(0);
  CHECK(text.find("trial 1: ") != text.npos);
  CHECK(text.find("trial 2/2") == text.npos);
}

}  // namespace tune_search_progress_test
