#include "etude/study/report.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/study/importance.hpp"
#include "etude/study/trial_text.hpp"

namespace study_report_test {

using etude::FrozenTrial;
using etude::StudyDirection;
using etude::TrialState;
using Trials = std::vector<FrozenTrial>;
using Directions = std::vector<StudyDirection>;

const double infinity = std::numeric_limits<double>::infinity(),
             nan = std::numeric_limits<double>::quiet_NaN();
const double largest = std::numeric_limits<double>::max();

FrozenTrial trial_of(std::int64_t number, TrialState state, std::vector<double> values,
                     std::map<std::string, double> params = {}) {
  FrozenTrial trial{
      .number = number, .state = state, .values = std::move(values), .params = std::move(params)};
  for (const auto& [name, value] : trial.params) {
    if (name == "lr") trial.distributions[name] = etude::FloatRange{.low = 1e-5, .high = 1e-1, .log = true};
    if (name == "layers") trial.distributions[name] = etude::IntRange{.low = 1, .high = 4};
    if (name == "optim") trial.distributions[name] = etude::Choices{{"sgd", "adamw", nullptr, 0.5}};
  }
  return trial;
}

Trials small_study() {
  Trials trials{trial_of(0, TrialState::complete, {0.5}, {{"lr", 2.39169e-05}, {"layers", 3}, {"optim", 1}}),
                trial_of(1, TrialState::pruned, {0.75}, {{"lr", 0.01}, {"layers", 2}, {"optim", 2}}),
                trial_of(2, TrialState::complete, {0.25}, {{"lr", 0.001}, {"optim", 0}}),
                trial_of(3, TrialState::fail, {}, {{"lr", 0.1}, {"layers", 1}, {"optim", 3}}),
                trial_of(4, TrialState::running, {})};
  trials[0].datetime_start = 1709209805,
  trials[0].datetime_complete = 1709209805 + 3725;  // 2024-02-29 12:30:05
  trials[1].intermediate_values = {{1, 0.9}, {2, 0.75}};
  trials[2].intermediate_values = {{1, 0.8}, {2, 0.5}, {3, 0.25}};
  return trials;
}

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

/// Parses a page and requires it to be well formed: tags are nested and closed, attributes are quoted, and
/// text has no bare angle brackets.
class Tags {
 public:
  explicit Tags(std::string_view page) : left_(page) {
    left_.remove_prefix(std::min(left_.find('\n'), left_.size()));  // <!DOCTYPE html>
    while (!left_.empty() && fault.empty()) {
      const auto text = until("<");
      if (text.find('>') != text.npos) fault = "a bare > in " + std::string(text);
      if (!left_.empty()) tag();
    }
    if (fault.empty() && !open_.empty()) fault = "not closed: " + open_.back();
  }

  std::string fault = {};
  std::map<std::string, std::vector<std::string>> attributes = {};  ///< all values, by name

 private:
  std::string_view until(std::string_view end) {
    const auto size = std::min(left_.find(end), left_.size());
    const auto part = left_.substr(0, size);
    left_.remove_prefix(size);
    return part;
  }
  std::string name() {
    const auto is_letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || (c >= '0' && c <= '9');
    };
    std::size_t size = 0;
    while (size < left_.size() && is_letter(left_[size])) ++size;
    const std::string part(left_.substr(0, size));
    left_.remove_prefix(size);
    return part;
  }
  bool skip(std::string_view text) {
    if (!left_.starts_with(text)) return false;
    left_.remove_prefix(text.size());
    return true;
  }
  void tag() {
    const std::string begin(left_.substr(0, 80));
    skip("<");
    const bool is_end = skip("/");
    const auto element = name();
    while (skip(" ")) {
      const auto attribute = name();
      if (attribute.empty() || (skip("=") && !skip("\""))) fault = "an attribute in " + begin;
      if (!left_.starts_with(">") && !left_.starts_with(" ")) {
        attributes[attribute].emplace_back(until("\""));
        skip("\"");
      }
    }
    const bool is_alone = skip("/") || element == "meta";
    if (element.empty() || !skip(">")) fault = "a tag in " + begin;
    if (is_end && (open_.empty() || open_.back() != element)) fault = "closed out of turn: " + begin;
    if (is_end && fault.empty()) open_.pop_back();
    if (!is_end && !is_alone) open_.push_back(element);
    if (!is_end && (element == "style" || element == "script")) until("</" + element);
  }

  std::string_view left_;
  std::vector<std::string> open_ = {};
};

/// The numbers in a path or another attribute.
std::vector<double> numbers_of(const std::string& place) {
  CHECK_MESSAGE(place.find_first_not_of("-MmLHVhvlazZ0123456789. ") == place.npos, place);
  std::vector<double> numbers;
  for (const char* at = place.c_str(); *at != 0;) {
    char* end = nullptr;
    const double number = std::strtod(at, &end);
    if (end != at) numbers.push_back(number);
    at = end == at ? at + 1 : end;
  }
  return numbers;
}

struct Page {
  explicit Page(const Trials& trials, const Directions& directions = {StudyDirection::minimize},
                const std::string& name = "etude") {
    const toy::Folder folder;
    etude::write_report(folder / "page.html", name, trials, directions);
    CHECK(toy::names_in(folder / "") == toy::Names{"page.html"});
    text = toy::read_text(folder / "page.html");
    Tags tags(text);
    CHECK(tags.fault == "");
    for (const auto* attribute : {"d", "x", "y"})
      for (const auto& place : tags.attributes[attribute]) {
        const auto numbers = numbers_of(place);
        const bool are_inside =
            std::ranges::all_of(numbers, [](double number) { return std::abs(number) < 3000; });
        CHECK_MESSAGE(are_inside, place);
      }
    // The page loads nothing from outside.
    for (const auto* outside : {"http:", "https:", "src=", "url(", "@import", "href"})
      CHECK(count(text, outside) == 0);
  }
  std::string text;
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

TEST_CASE("the page has the counts, the best trial, its time and its hyperparameters") {
  const auto page = Page(small_study()).text;
  CHECK(count(page, "<li><b>2</b>complete</li>") == 1);
  CHECK(count(page, "<li><b>1</b>failed</li>") == 1);
  CHECK(count(page, "<dt>value</dt><dd>0.25</dd>") == 1);
  CHECK(count(page, "<dt>lr</dt><dd>0.001</dd>") == 1);
  CHECK(count(page, "<dt>optim</dt><dd>sgd</dd>") == 1);
  CHECK(count(page, "<dt>layers</dt>") == 0);
  CHECK(count(page, "From 2024-02-29 12:30 UTC to 2024-02-29 13:32 UTC: 1 h 02 min.") == 1);
  CHECK(count(page, "<td data-v=\"3725\">1 h 02 min</td>") == 1);
  CHECK(count(page, "<tr data-t=\"2\" class=\"top\">") == 1);
  CHECK(count(page, "<tr data-t=") == 5);
  CHECK(count(Page(small_study(), {StudyDirection::maximize}).text, "<tr data-t=\"0\" class=\"top\">") == 1);
}

TEST_CASE("the history places each trial by its number and value, and the best so far") {
  const Trials trials{trial_of(0, TrialState::complete, {2}), trial_of(1, TrialState::complete, {3}),
                      trial_of(2, TrialState::complete, {1}), trial_of(3, TrialState::pruned, {2.5}),
                      trial_of(4, TrialState::fail, {})};
  const auto page = Page(trials).text;
  // The plot is 610 wide from 92 and 318 high from 336 up; 1 to 3 with a margin of 2 / 25 is 0.92 to 3.08.
  CHECK(count(page, R"(<path class="m complete" data-t="0" d="M92.0 177.0)") == 1);
  CHECK(count(page, R"(<path class="m complete" data-t="1" d="M244.5 29.8)") == 1);
  CHECK(count(page, R"(<path class="m best" data-t="2" d="M397.0 324.2)") == 1);
  CHECK(count(page, R"(<path class="m pruned" data-t="3" d="M549.5 103.4)") == 1);
  CHECK(count(page, R"(<path class="m failed" data-t="4" d="M702.0 336.0)") == 1);
  CHECK(count(page, R"(<path class="so-far" d="M92.0 177.0L397.0 177.0L397.0 324.2L702.0 324.2">)") == 1);
  CHECK(count(Page(trials, {StudyDirection::maximize}).text,
              R"(<path class="so-far" d="M92.0 177.0L244.5 177.0L244.5 29.8L702.0 29.8">)") == 1);
}

TEST_CASE("two objectives have a Pareto front, more have a history each") {
  const Trials two{trial_of(0, TrialState::complete, {1, 3}), trial_of(1, TrialState::complete, {3, 1}),
                   trial_of(2, TrialState::complete, {3, 3})};
  const auto front = Page(two, {StudyDirection::minimize, StudyDirection::minimize}).text;
  CHECK(count(front, "Pareto front</h2>") == 1);
  CHECK(count(front, "Optimisation history") == 0);
  // 1 and 3 are at 0.037 and 0.963 of the plot; the line turns at the worse value of each objective.
  CHECK(count(front, R"(<path class="so-far" d="M114.6 29.8L679.4 29.8L679.4 324.2"/>)") == 1);
  CHECK(count(front, "<path class=\"m best\" data-t=") == 2);
  const Trials three{trial_of(0, TrialState::complete, {1, 3, 2}),
                     trial_of(1, TrialState::complete, {3, 1, 2})};
  const auto histories =
      Page(three, {StudyDirection::minimize, StudyDirection::minimize, StudyDirection::maximize}).text;
  CHECK(count(histories, "aria-label=\"Optimisation history: ") == 3);
}

TEST_CASE(
    "parallel coordinates have log axes, choices in their order, and a place for absent hyperparameters") {
  Trials trials = small_study();
  trials.push_back(trial_of(5, TrialState::complete, {0.75}, {{"lr", 0.1}, {"layers", 1}, {"optim", 2}}));
  const auto page = Page(trials).text;
  const auto begin = page.find("<svg class=\"chart parallel\"");
  REQUIRE(begin != page.npos);
  const auto chart = page.substr(begin, page.find("</svg>", begin) - begin);
  CHECK(count(chart, "data-t=") == 3);  // the complete ones
  // The axis runs from y = 400 up to 48; lr 0.001 is in the middle of its four decades.
  const auto line = chart.substr(chart.find("data-t=\"2\" d=\""));
  const auto path = line.substr(0, line.find("><"));
  CHECK(count(path, " 224.0") == 1);
  CHECK(count(path, " 436.0") == 1);
  CHECK(count(chart, ">absent</text>") == 1);
  CHECK(count(chart, ">log</text>") == 1);
  for (const auto* label : {">1e-05<", ">0.0001<", ">0.1<", ">sgd<", ">adamw<", ">null<", ">0.5<"})
    CHECK_MESSAGE(count(chart, label) >= 1, std::string(label));
  // The best, the second and the worst of three: colours 9, 4 or 5, and 0.
  CHECK(count(chart, "class=\"l v9\" data-t=\"2\"") == 1);
  CHECK(count(chart, "class=\"l v4\" data-t=\"0\"") + count(chart, "class=\"l v5\" data-t=\"0\"") == 1);
  CHECK(count(chart, "class=\"l v0\" data-t=\"5\"") == 1);
}

TEST_CASE("curves are drawn for reports, and those of pruned trials end with a mark") {
  const auto page = Page(small_study()).text;
  const auto begin = page.find("<section class=\"curves\"");
  REQUIRE(begin != page.npos);
  const auto chart = page.substr(begin, page.find("</section>", begin) - begin);
  CHECK(count(chart, "<path class=\"l best\" data-t=\"2\"") == 1);
  CHECK(count(chart, "<path class=\"l pruned\" data-t=\"1\"") == 1);
  CHECK(count(chart, "<path class=\"m pruned\" data-t=\"1\" d=\"M397.0 ") == 1);  // step 2 of 1 to 3
  CHECK(count(Page({trial_of(0, TrialState::complete, {1})}).text, "<section class=\"curves\"") == 0);
}

TEST_CASE("the page has the importances in percent") {
  Trials trials;
  for (int i = 0; i < 40; ++i)
    trials.push_back(trial_of(i, TrialState::complete, {std::abs(i % 4 - 2.0) + 0.01 * (i % 7)},
                              {{"layers", 1 + i % 4}, {"lr", 1e-5 * std::pow(10, i % 5)}}));
  const auto page = Page(trials).text;
  for (const auto& entry : etude::param_importances(trials, StudyDirection::minimize)) {
    const auto& name = entry.first;
    std::ostringstream percent;
    percent.precision(1);
    percent << std::fixed << 100 * entry.second;
    const auto begin = page.find("title=\"" + name + "\">" + name + "</th><td><i style=\"width:");
    REQUIRE(begin != page.npos);
    CHECK(count(page.substr(begin, page.find("</tr>", begin) - begin),
                "</i></td><td>" + percent.str() + " %</td>") == 1);
  }
  CHECK(count(page, "<i style=\"width:100.0%\">") == 1);
}

TEST_CASE("texts of a study can't become HTML") {
  const std::string evil = "</title></script><script>alert(1)</script><img onerror=alert(1)>\"' onload='x";
  auto trial = trial_of(0, TrialState::complete, {1}, {{evil, 0.5}, {"optim", 1}, {"weird", 0}});
  trial.distributions["optim"] = etude::Choices{{"a", evil}};
  trial.distributions["weird"] = etude::Choices{{"\xFF\x01&amp;"}};
  trial.intermediate_values = {{1, 1}};
  const auto page = Page({trial, trial}, {StudyDirection::minimize}, evil).text;
  CHECK(count(page, "<script") == 1);
  CHECK(count(page, "</script") == 1);
  CHECK(count(page, "</title></script>") == 0);
  CHECK(count(page, "<img") == 0);
  CHECK(count(page, "&lt;script&gt;alert(1)") > 4);
  CHECK(count(page, "\uFFFD\uFFFD&amp;amp;") > 0);
  const auto nonce = page.substr(page.find("'nonce-") + 7, 16);
  CHECK(nonce.find_first_not_of("0123456789abcdef") == nonce.npos);
  CHECK(count(page, "<script nonce=\"" + nonce + "\">") == 1);
  CHECK(count(Page({trial}).text, nonce) == 0);
}

TEST_CASE("the number of a trial links to the trial's own page, if it has one") {
  const toy::Folder folder;
  const auto link = [](const FrozenTrial& trial) {
    return trial.number == 0 ? std::string("a\"b/report.html") : std::string();
  };
  etude::write_report(folder / "page.html", "etude",
                      {trial_of(0, TrialState::complete, {0.25}), trial_of(1, TrialState::complete, {0.75})},
                      {StudyDirection::minimize}, link);
  const auto page = toy::read_text(folder / "page.html");
  CHECK(count(page, "<a ") == 1);
  CHECK(count(page, "<td data-v=\"0\">\u2605 <a href=\"a&quot;b/report.html\">0</a></td>") == 1);
  CHECK(count(page, "<td data-v=\"1\">1</td>") == 1);
}

TEST_CASE("numbers that aren't finite, or are huge, leave the page whole") {
  Trials trials{trial_of(0, TrialState::complete, {infinity}, {{"lr", 1e-5}}),
                trial_of(1, TrialState::complete, {-infinity}, {{"lr", nan}}),
                trial_of(2, TrialState::complete, {largest}, {{"lr", infinity}}),
                trial_of(3, TrialState::complete, {-largest}, {{"lr", -largest}, {"layers", largest}}),
                trial_of(4, TrialState::complete, {nan}, {{"optim", nan}}),
                trial_of(5, TrialState::complete, {0}, {{"optim", 17}, {"layers", -largest}}),
                trial_of(6, TrialState::complete, {}, {{"without a distribution", largest}}),
                trial_of(7, TrialState::pruned, {1, 2, 3}, {{"wide", largest}})};
  trials[7].distributions["wide"] = etude::FloatRange{.low = -largest, .high = largest};
  trials[3].intermediate_values = {{std::numeric_limits<std::int64_t>::min(), largest},
                                   {std::numeric_limits<std::int64_t>::max(), -largest}};
  trials[5].intermediate_values = {{0, nan}, {1, infinity}};
  for (auto& trial : trials) trial.datetime_start = -largest, trial.datetime_complete = largest;
  trials[0].datetime_start = nan;
  const auto page = Page(trials).text;
  CHECK(count(page, "<td data-v=\"-Infinity\">-inf</td>") == 1);
  CHECK(count(page, "UTC") == 0);
  CHECK(count(Page(trials, {StudyDirection::maximize}).text, "<tr data-t=\"0\" class=\"top\">") == 1);
  for (const Directions& directions :
       {Directions{}, Directions(2, StudyDirection::minimize), Directions(9)}) {
    Page with(trials, directions);
    CHECK_FALSE(etude::format_trials(trials, directions).empty());
  }
  Page one({trials[5]});
  Page nothing({});
}

TEST_CASE("a few values far from the others don't hide those") {
  Trials trials;
  for (int i = 0; i < 50; ++i)
    trials.push_back(trial_of(i, TrialState::complete, {i == 7 ? 1e30 : (i % 10) - 4.0}));
  const auto page = Page(trials).text;
  CHECK(count(page, "class=\"m complete beyond\" data-t=\"7\"") == 1);
  CHECK(count(page, "1 value is beyond the axis") == 1);
  std::set<double> heights;
  Tags tags(page);
  for (const auto& place : tags.attributes["d"])
    if (const auto numbers = numbers_of(place); place.ends_with("0-9 0") && !place.starts_with("M0 "))
      heights.insert(numbers[1]);
  CHECK(heights.size() == 10);
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
  const auto page = Page(trials).text;
  CHECK(page.size() < 3'000'000);
  CHECK(count(page, "<p class=\"lead\">1000 of 10000 trials are drawn and listed") == 1);
  CHECK(count(page, "<tr data-t=") == 1000);
  CHECK(count(page, "<tr data-t=\"4321\" class=\"top\">") == 1);
  CHECK(count(page, "30 of 62 hyperparameters are shown") == 1);
  CHECK(count(page, "12 of 62 hyperparameters are drawn") == 1);
  CHECK(count(page, "<li><b>8000</b>complete</li>") == 1);
  CHECK(count(page, "<td class=\"w\">pruned</td>") > 50);  // not the best alone
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
  CHECK(count(toy::read_text(folder / "page.html"), "<h1>new name</h1>") == 1);
}

TEST_CASE("durations and times are words that people use") {
  using etude::detail::duration_text, etude::detail::time_text;
  CHECK(duration_text(0.0001) == "< 1 ms");
  CHECK(duration_text(0.0123) == "12 ms");
  CHECK(duration_text(0.99951) == "1.0 s");
  CHECK(duration_text(59.94) == "59.9 s");
  CHECK(duration_text(59.96) == "1 min 00 s");
  CHECK(duration_text(3599.7) == "1 h 00 min");
  CHECK(duration_text(3 * 86400 + 4 * 3600) == "3 d 04 h");
  CHECK(time_text(0) == "1970-01-01 00:00 UTC");
  CHECK(time_text(-1) == "1969-12-31 23:59 UTC");
  CHECK(time_text(1e300) == "");
  CHECK(time_text(nan) == "");
}

}  // namespace study_report_test
