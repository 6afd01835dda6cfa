#include "etude/study/report.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/small_study.hpp"
#include "etude/study/importance.hpp"
#include "etude/study/trial_text.hpp"

namespace study_report_test {

using etude::FrozenTrial;
using etude::StudyDirection;
using etude::TrialState;
using toy::small_study;
using toy::trial_of;
using Trials = std::vector<FrozenTrial>;
using Directions = std::vector<StudyDirection>;
using Json = nlohmann::json;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// The page of a study, and the data that its script draws.
struct Page {
  explicit Page(const Trials& trials, const Directions& directions = {StudyDirection::minimize},
                const std::string& name = "etude") {
    const toy::Folder folder;
    etude::write_report(folder / "page.html", name, trials, directions);
    CHECK(toy::names_in(folder / "") == toy::Names{"page.html"});
    text = toy::read_text(folder / "page.html");
    const std::string begin = "<script type=\"application/json\" id=\"study\">";
    const auto from = text.find(begin) + begin.size();
    study = nlohmann::json::parse(text.substr(from, text.find("</script>", from) - from));
    // Nothing is loaded from anywhere.
    for (const auto* outside : {"http:", "https:", "src=", "url(", "@import", "href="})
      CHECK(count(text, outside) == (outside == std::string("http:") ? 1 : 0));  // the name of SVG
  }
  /// A member of each trial, in order.
  nlohmann::json each(const std::string& member) const {
    auto values = nlohmann::json::array();
    for (const auto& trial : study["trials"]) values.push_back(trial[member]);
    return values;
  }
  std::string text;
  nlohmann::json study;
};

TEST_CASE("the table has the best trial first, marked, and numbers to read") {
  CHECK(etude::format_trials(small_study(), {StudyDirection::minimize}) ==
        "5 trials: 2 complete, 1 pruned, 1 failed, 1 running. Best: trial 2\n"
        "\n"
        "  trial  state     value        time         lr  optim  layers\n"
        "*     2  complete   0.25                  0.001  sgd\n"
        "      0  complete    0.5  1 h 02 min  2.392e-05  adamw       3\n"
        "      1  pruned     0.75                   0.01  null        2\n"
        "      4  running\n"
        "      3  failed                             0.1  0.5         1\n");
  const auto lines = lines_of(etude::format_trials(small_study(), {StudyDirection::maximize}));
  CHECK(lines[3].starts_with("*     0  complete    0.5"));
  CHECK(etude::format_trials({}, {StudyDirection::minimize}) == "0 trials\n\n  trial  state  value\n");
}

TEST_CASE("with several objectives, the table marks the trials that no other beats in all") {
  const Trials trials{trial_of(0, TrialState::complete, {1, 5}), trial_of(1, TrialState::complete, {2, 6}),
                      trial_of(2, TrialState::complete, {2, 4}), trial_of(3, TrialState::complete, {3, 9}),
                      trial_of(4, TrialState::complete, {2, 6}), trial_of(5, TrialState::complete, {nan, 9})};
  const auto lines =
      lines_of(etude::format_trials(trials, {StudyDirection::minimize, StudyDirection::maximize}));
  CHECK(lines[0].ends_with("Best: 4 trials that no other beats in all values"));
  std::vector<std::string> order;
  for (std::size_t i = 3; i < lines.size(); ++i) order.push_back(lines[i].substr(0, 7));
  CHECK(order == std::vector<std::string>{"*     0", "*     1", "*     4", "*     3", "      2", "      5"});
}

TEST_CASE(
    "the table fits a terminal, cuts texts but no numbers, and names hyperparameters that it left out") {
  Trials trials;
  for (int i = 0; i < 30; ++i) {
    auto trial = trial_of(i, TrialState::complete, {-1.23456789e-300 * i}, {{"optim", 1}});
    trial.distributions["optim"] = etude::Choices{{"a", std::string(300, 'x')}};
    for (int k = 0; k < 20; ++k)
      trial.params["hyperparameter_of_layer_" + std::to_string(k)] = 1.2345678e-5 * i;
    trial.params["宽的名字宽的名字宽的名字宽的名字"] = 1;
    trials.push_back(trial);
  }
  const auto text = etude::format_trials(trials, {StudyDirection::minimize});
  for (const auto& line : lines_of(text)) CHECK_MESSAGE(etude::detail::columns_of(line) <= 110, line);
  CHECK(count(text, "  2.469e-05") > 0);
  CHECK(count(text, "hype…er_") + count(text, "hyp…") > 0);
  CHECK(count(text, "more hyperparameters: ") == 1);
}

TEST_CASE("nothing in a study controls the terminal") {
  auto trial = trial_of(0, TrialState::complete, {1}, {{"\x1b[31mred", 0.5}, {"optim", 0}});
  trial.distributions["optim"] = etude::Choices{{"a\nb\tc\u202Ed\u009B\xFF"}};
  const auto text = etude::format_trials({trial}, {StudyDirection::minimize});
  const bool has_controls =
      std::ranges::any_of(text, [](char c) { return (c >= 0 && c < 0x20 && c != '\n') || c == 0x7F; });
  CHECK_FALSE(has_controls);
  CHECK(count(text, "\u202E") == 0);
  CHECK(count(text, "\u009B") == 0);
  CHECK(count(text, "a\uFFFDb\uFFFDc\uFFFDd\uFFFD\uFFFD") == 1);
  CHECK(lines_of(text).size() == 4);
}

TEST_CASE("the page has the counts, the trials with the best first, their times and hyperparameters") {
  const Page page(small_study());
  const auto& study = page.study;
  CHECK(study["name"] == "etude");
  CHECK(study["trials_in_all"] == 5);
  CHECK(study["counts"] == Json{{"complete", 2}, {"pruned", 1}, {"failed", 1}, {"running", 1}});
  CHECK(study["times"] == Json{1709209805, 1709209805 + 3725});
  CHECK(study["best"] == Json{2});
  CHECK(page.each("number") == Json{2, 0, 1, 4, 3});
  CHECK(page.each("best") == Json{true, false, false, false, false});
  CHECK(page.each("state") == Json{"complete", "complete", "pruned", "running", "failed"});
  CHECK(page.each("seconds") == Json{nullptr, 3725, nullptr, nullptr, nullptr});
  // The pruned trial's value is its last report.
  CHECK(page.each("values") == Json{{0.25}, {0.5}, {0.75}, {nullptr}, {nullptr}});
  std::map<std::string, Json> params;
  for (std::size_t k = 0; k < study["params"].size(); ++k)
    for (const auto& trial : study["trials"])
      params[study["params"][k]["name"]].push_back(trial["params"][k]);
  CHECK(params["lr"] == Json{0.001, 2.39169e-05, 0.01, nullptr, 0.1});
  CHECK(params["layers"] == Json{nullptr, 3, 2, nullptr, 1});
  CHECK(params["optim"] == Json{"sgd", "adamw", "null", nullptr, "0.5"});
  CHECK(study["trials"][2]["reports"] == Json{{1, 0.9}, {2, 0.75}});
  CHECK(Page(small_study(), {StudyDirection::maximize}).study["best"] == Json{0});
}

TEST_CASE("the page has the ranges and choices of hyperparameters, those that no trial has too") {
  auto trials = small_study();
  trials[0].params["size"] = 3;
  trials[0].distributions["size"] = etude::IntRange{.low = 2, .high = 8};
  trials[2].params["size"] = 16;
  trials[2].distributions["size"] = etude::IntRange{.low = 8, .high = 32};
  trials[2].params["free"] = 0.5;
  std::map<std::string, Json> params;
  const Page page(trials);
  for (const auto& param : page.study["params"]) params[param["name"]] = param;
  CHECK(params["lr"] == Json{{"name", "lr"}, {"low", 1e-5}, {"high", 1e-1}, {"log", true}, {"whole", false}});
  CHECK(params["optim"] == Json{{"name", "optim"}, {"choices", {"sgd", "adamw", "null", "0.5"}}});
  CHECK(params["size"] == Json{{"name", "size"}, {"low", 2}, {"high", 32}, {"log", false}, {"whole", true}});
  CHECK(params["free"] ==
        Json{{"name", "free"}, {"low", nullptr}, {"high", nullptr}, {"log", false}, {"whole", false}});
}

TEST_CASE("the best so far changes where a complete trial is better than all before it") {
  const Trials trials{trial_of(0, TrialState::complete, {2}), trial_of(1, TrialState::complete, {3}),
                      trial_of(2, TrialState::complete, {1}), trial_of(3, TrialState::pruned, {0.5}),
                      trial_of(4, TrialState::fail, {})};
  CHECK(Page(trials).study["objectives"][0]["best_so_far"] == Json{{0, 2}, {2, 1}});
  CHECK(Page(trials, {StudyDirection::maximize}).study["objectives"][0]["best_so_far"] ==
        Json{{0, 2}, {1, 3}});
}

TEST_CASE("the best so far of a large study has its best value, however soon it came after another") {
  Trials trials;
  for (std::int64_t i = 0; i < 20'000; ++i)
    trials.push_back(trial_of(i, TrialState::complete, {i == 0 ? 5.0 : i == 1 ? 1.0 : 3.0}));
  CHECK(Page(trials).study["objectives"][0]["best_so_far"] == Json{{1, 1}});
}

TEST_CASE("each objective has its direction, and the best of several are those that no other beats") {
  const Trials trials{trial_of(0, TrialState::complete, {1, 3}), trial_of(1, TrialState::complete, {3, 1}),
                      trial_of(2, TrialState::complete, {3, 3})};
  const Page page(trials, {StudyDirection::minimize, StudyDirection::minimize});
  CHECK(page.study["best"] == Json{0, 1});
  CHECK(page.each("best") == Json{true, true, false});
  const auto study = Page(trials, {StudyDirection::minimize, StudyDirection::maximize}).study;
  CHECK(study["objectives"][0]["direction"] == "minimize");
  CHECK(study["objectives"][1]["direction"] == "maximize");
}

TEST_CASE("the page has the importances, the largest first") {
  Trials trials;
  for (int i = 0; i < 40; ++i)
    trials.push_back(trial_of(i, TrialState::complete, {std::abs(i % 4 - 2.0) + 0.01 * (i % 7)},
                              {{"layers", 1 + i % 4}, {"lr", 1e-5 * std::pow(10, i % 5)}}));
  const auto study = Page(trials).study;
  const auto& bars = study["objectives"][0]["importances"];
  const auto expected = etude::param_importances(trials, StudyDirection::minimize);
  REQUIRE(bars.size() == expected.size());
  for (const auto& bar : bars) CHECK(bar[1] == expected.at(bar[0]));
  CHECK(bars[0][1] > bars[1][1]);
  CHECK(study["params"][0]["name"] == bars[0][0]);
}

TEST_CASE("texts of a study can't become HTML") {
  const std::string evil = "</title></script><script>alert(1)</script><img onerror=alert(1)>\"' onload='x";
  auto trial = trial_of(0, TrialState::complete, {1}, {{evil, 0.5}, {"optim", 1}, {"weird", 0}});
  trial.distributions["optim"] = etude::Choices{{"a", evil}};
  trial.distributions["weird"] = etude::Choices{{"\xFF\x01&amp;"}};
  trial.intermediate_values = {{1, 1}};
  const Page written({trial, trial}, {StudyDirection::minimize}, evil);
  const auto& page = written.text;
  CHECK(count(page, "<script") == 2);
  CHECK(count(page, "</script") == 2);
  CHECK(count(page, "</title>") == 1);
  CHECK(count(page, "<img") == 0);
  CHECK(written.study["name"] == evil);
  CHECK(count(page, "\uFFFD\uFFFD&amp;") > 0);
  const auto nonce = page.substr(page.find("'nonce-") + 7, 16);
  CHECK(nonce.find_first_not_of("0123456789abcdef") == nonce.npos);
  CHECK(count(page, "<script nonce=\"" + nonce + "\">") == 1);
  CHECK(count(Page({trial}).text, nonce) == 0);
}

TEST_CASE("a trial has the address of its own page, if it has one") {
  const toy::Folder folder;
  const auto link = [](const FrozenTrial& trial) {
    return trial.number == 0 ? std::string("a\"b/report.html") : std::string();
  };
  etude::write_report(folder / "page.html", "etude",
                      {trial_of(0, TrialState::complete, {0.25}), trial_of(1, TrialState::complete, {0.75})},
                      {StudyDirection::minimize}, link);
  const auto page = toy::read_text(folder / "page.html");
  CHECK(count(page, "\"link\":") == 1);
  CHECK(count(page, R"("link":"a\"b/report.html")") == 1);
}

TEST_CASE("numbers that aren't finite, or are huge, leave the page whole") {
  const auto trials = toy::odd_study();
  const Page page(trials);
  CHECK(page.study["best"] == Json{1});
  CHECK(page.study["times"] == nullptr);
  CHECK(page.each("values")[0] == Json{"-Infinity"});
  CHECK(Page(trials, {StudyDirection::maximize}).study["best"] == Json{0});
  for (const Directions& directions :
       {Directions{}, Directions(2, StudyDirection::minimize), Directions(9)}) {
    Page with(trials, directions);
    CHECK_FALSE(etude::format_trials(trials, directions).empty());
  }
  Page one({trials[5]});
  Page nothing({});
}

TEST_CASE("the page of a large study has a sample, in which the best is, and says so") {
  Trials trials;
  for (int i = 0; i < 10000; ++i) {
    trials.push_back(trial_of(i, i % 5 == 0 ? TrialState::pruned : TrialState::complete,
                              {i == 4321 ? -1.0 : std::fmod(i * 0.618, 1.0)},
                              {{"lr", 0.01}, {"optim", i % 4}}));
    for (int k = 0; k < 60; ++k) trials.back().params["p" + std::to_string(k)] = k;
    if (i % 100 == 1)
      for (int step = 0; step < 1000; ++step) trials.back().intermediate_values[step] = 1.0 / (step + 1);
  }
  const Page page(trials);
  const auto& study = page.study;
  CHECK(page.text.size() < 3'000'000);
  CHECK(study["trials_in_all"] == 10000);
  CHECK(study["trials"].size() == 1000);
  CHECK(study["trials"][0]["number"] == 4321);
  CHECK(study["params_in_all"] == 62);
  CHECK(study["params"].size() == 30);
  CHECK(study["counts"]["complete"] == 8000);
  CHECK(study["reports_in_all"] == 100);
  std::size_t pruned = 0;
  for (const auto& trial : study["trials"]) {
    pruned += trial["state"] == "pruned";
    if (!trial.contains("reports")) continue;
    CHECK(trial["reports"].size() <= 201);
    CHECK(trial["reports"].back() == Json{999, 0.001});
  }
  CHECK(pruned > 50);  // not the best alone
  for (const auto& line : lines_of(etude::format_trials(trials, {StudyDirection::minimize}))) {
    if (line.size() <= 110) continue;
    CHECK(etude::detail::columns_of(line) <= 110);
  }
}

TEST_CASE("a page that can't be written is an error with its path, and one that is there is replaced") {
  const toy::Folder folder;
  const auto fault = toy::fault_of(
      [&] { etude::write_report(folder / "nowhere/page.html", "etude", {}, {StudyDirection::minimize}); });
  CHECK(toy::contains(fault, "nowhere/"));
  toy::write_text(folder / "page.html", "old");
  etude::write_report(folder / "page.html", "new name", {}, {StudyDirection::minimize});
  CHECK(count(toy::read_text(folder / "page.html"), "<title>new name</title>") == 1);
}

}  // namespace study_report_test
