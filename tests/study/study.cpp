#include "etude/study/study.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"

namespace study_study_test {

using etude::StudyDirection;
using etude::TrialState;

template <class Act>
std::string fault(Act act) {
  return toy::fault_of<etude::ArgumentError>(act);
}

double objective(etude::Trial& trial) {
  const double x = trial.suggest_float("x", {.low = -10, .high = 10});
  const auto n = trial.suggest_int("n", {.low = 1, .high = 4});
  const bool is_sgd = trial.suggest_categorical<std::string>("optim", {"adamw", "sgd"}) == "sgd";
  const double momentum = is_sgd ? trial.suggest_float("momentum", {.low = 0, .high = 1}) : 0.5;
  return x * x + static_cast<double>(n) + is_sgd + std::abs(momentum - 0.5);
}

void run(etude::Study& study, int count) {
  for (int i = 0; i < count; ++i) {
    auto trial = study.ask();
    study.tell(trial, objective(trial));
  }
}

std::vector<std::map<std::string, double>> params(etude::Study& study) {
  std::vector<std::map<std::string, double>> result;
  for (const auto& trial : study.trials()) result.push_back(trial.params);
  return result;
}

TEST_CASE("a study finds a good trial, whose values it tells") {
  etude::Study study({.seed = 1});
  CHECK_FALSE(study.best_trial());
  run(study, 80);
  const auto best = study.best_trial().value();
  CHECK(best.values[0] < 2);
  CHECK(best.param("optim") == "adamw");
  CHECK(best.param("n") == 1);
  CHECK(std::abs(best.param("x").get<double>()) < 1);
  CHECK(fault([&] { best.param("momentum"); }).ends_with(" has no momentum"));
}

TEST_CASE("with a journal, a study goes on where it was left, with the values that an unbroken one has") {
  const toy::Folder folder;
  etude::Study unbroken({.seed = 5});
  run(unbroken, 30);
  for (int part = 0; part < 3; ++part) {
    etude::Study study({.journal = folder / "study.log", .seed = 5});
    run(study, 10);
  }
  etude::Study study({.journal = folder / "study.log"});
  CHECK(params(study) == params(unbroken));
  CHECK(study.best_trial()->values == unbroken.best_trial()->values);
  etude::Study other({.seed = 6});
  run(other, 30);
  CHECK(params(other) != params(unbroken));
}

TEST_CASE("a trial that was killed between two suggestions goes on with the same values") {
  const auto value = [](std::uint64_t seed, const std::vector<std::string>& names, int ended) {
    etude::Study study({.seed = seed});
    for (int i = 0; i < ended; ++i) study.tell(study.ask(), 0);
    auto trial = study.ask();
    double last = 0;
    for (const auto& name : names) last = trial.suggest_float(name, {.low = 0, .high = 1});
    return last;
  };
  const double b = value(1, {"a", "b"}, 0);
  CHECK(value(1, {"b"}, 0) == b);  // asked for first, as after a kill
  CHECK(value(1, {"c", "a", "b"}, 0) == b);
  const std::set<double> others{b,
                                value(2, {"b"}, 0),
                                value(1, {"b"}, 1),
                                value(1, {"a"}, 0),
                                value(1, {"ab"}, 0),
                                value(1, {"ba"}, 0)};
  CHECK(others.size() == 6);
}

TEST_CASE("first values of neighbouring seeds, trials and names don't go together") {
  const auto value = [](std::uint64_t seed, std::int64_t number, const std::string& name) {
    return etude::RandomNumbers(etude::detail::stream_seed(seed, number, name)).uniform() - 0.5;
  };
  double seeds = 0, trials = 0, names = 0, both = 0;
  const int count = 1000;
  for (int i = 0; i < count; ++i) {
    const auto seed = static_cast<std::uint64_t>(i / 10);
    const double x = value(seed, i % 10, "x0") * 12 / count;  // 1 / 12 is the variance
    seeds += x * value(seed + 1, i % 10, "x0");
    trials += x * value(seed, i % 10 + 1, "x0");
    names += x * value(seed, i % 10, "x1");
    both += x * value(seed + 1, i % 10 + 1, "x0");
  }
  for (const double correlation : {seeds, trials, names, both}) CHECK(std::abs(correlation) < 0.1);
}

TEST_CASE("a value is the same at each call, and a kind that changes is an error") {
  etude::Study study({});
  auto trial = study.ask();
  const double x = trial.suggest_float("x", {.low = 0, .high = 1});
  CHECK(trial.suggest_float("x", {.low = 0, .high = 1}) == x);
  CHECK(trial.params() == std::map<std::string, nlohmann::ordered_json>{{"x", x}});
  study.tell(trial, x);
  auto next = study.ask();
  CHECK(fault([&] { next.suggest_int("x", {.low = 0, .high = 4}); }) ==
        "x is a range of whole numbers: must be a range of numbers, as in trial 0");
  CHECK(next.suggest_float("x", {.low = 3, .high = 4}) >= 3);  // a range may change
}

TEST_CASE("enqueued trials come first, and each worker gets another") {
  const toy::Folder folder;
  etude::Study a({.journal = folder / "j"}), b({.journal = folder / "j"});
  a.enqueue_trial({{"x", 2.5}});
  a.enqueue_trial({{"x", -1}, {"optim", "sgd"}});
  auto first = b.ask(), second = a.ask(), third = b.ask();
  CHECK(std::set{first.number(), second.number(), third.number()} == std::set<std::int64_t>{0, 1, 2});
  CHECK(first.suggest_float("x", {.low = 0, .high = 5}) == 2.5);
  CHECK(second.suggest_categorical<std::string>("optim", {"adamw", "sgd"}) == "sgd");
  CHECK(toy::fault_of<etude::DataError>([&] { second.suggest_float("x", {.low = 0, .high = 5}); }) ==
        "trial 1 was enqueued with other values: x is -1: must be from 0 to 5");
  a.tell(second, TrialState::fail);
  b.tell(first, 1);
  CHECK(a.trials()[0].state == TrialState::complete);
  CHECK(a.trials()[1].state == TrialState::fail);
  CHECK(a.trials()[2].state == TrialState::running);
}

TEST_CASE("workers that ask at once get each enqueued trial once") {
  const toy::Folder folder;
  constexpr std::size_t workers = 4, each = 15;
  etude::Study study({.journal = folder / "j"});
  for (std::size_t i = 0; i < workers * each; ++i) study.enqueue_trial({{"x", i}});
  std::vector<std::vector<std::int64_t>> taken(workers);
  {
    std::vector<std::jthread> threads;
    for (auto& numbers : taken)
      threads.emplace_back([&] {
        etude::Study own({.journal = folder / "j"});
        for (std::size_t i = 0; i < each; ++i) numbers.push_back(own.ask().number());
      });
  }
  std::set<std::int64_t> all;
  for (const auto& numbers : taken) all.insert(numbers.begin(), numbers.end());
  CHECK(all.size() == workers * each);
  CHECK(*all.rbegin() == workers * each - 1);
}

TEST_CASE("results that are no numbers, come twice or are too many") {
  etude::Study study({});
  auto trial = study.ask();
  CHECK(fault([&] {
          study.tell(trial, {1, 2});
        }) == "trial 0 has 2 values: must be 1, one for each objective");
  CHECK(fault([&] { study.tell(trial, TrialState::running); }) ==
        "the state of trial 0 is running: must be pruned or fail");
  study.tell(trial, std::numeric_limits<double>::quiet_NaN());
  CHECK(study.trials()[0].state == TrialState::fail);
  CHECK(fault([&] { study.tell(trial, 1); }) == "trial 0 is finished already");
  CHECK_FALSE(study.best_trial());
  auto infinite = study.ask();
  study.tell(infinite, std::numeric_limits<double>::infinity());
  CHECK(study.trials()[1].values[0] == std::numeric_limits<double>::infinity());
}

TEST_CASE("a pruned trial keeps its last report, and what the pruner noted") {
  etude::Study study(
      {.pruner = std::make_shared<etude::SuccessiveHalvingPruner>(
           etude::SuccessiveHalvingPruner::Options{.min_resource = 1, .reduction_factor = 2})});
  auto good = study.ask(), bad = study.ask();
  CHECK_FALSE(good.should_prune());  // nothing reported
  good.report(1, 1);
  CHECK_FALSE(good.should_prune());
  bad.report(2, 1);
  bad.report(9, 1);  // only the first counts
  CHECK(bad.should_prune());
  study.tell(bad, TrialState::pruned);
  study.tell(good, 1);
  const auto kept = study.trials()[1];
  CHECK(kept.state == TrialState::pruned);
  CHECK(kept.values == std::vector<double>{2});
  CHECK(kept.system_attrs["completed_rung_0"] == 2);
}

TEST_CASE("of several objectives, the best trials are those that no other beats in all") {
  etude::Study study({.directions = {StudyDirection::minimize, StudyDirection::maximize}});
  for (const auto& values : {std::vector<double>{1, 1}, {2, 2}, {2, 1}, {0, 0}, {3, 2}}) {
    const auto trial = study.ask();
    study.tell(trial, values);
  }
  std::set<std::int64_t> best;
  for (const auto& trial : study.best_trials()) best.insert(trial.number);
  CHECK(best == std::set<std::int64_t>{0, 1, 3});
  CHECK_FALSE(study.best_trial());
}

TEST_CASE("studies of other names share a journal, and one with different directions is refused") {
  const toy::Folder folder;
  etude::Study a({.study_name = "a", .journal = folder / "j"}),
      b({.study_name = "b", .journal = folder / "j"});
  run(a, 2);
  run(b, 3);
  CHECK(etude::Study({.study_name = "a", .journal = folder / "j"}).trials().size() == 2);
  CHECK(b.trials().size() == 3);
  CHECK(fault([&] {
          etude::Study(
              {.study_name = "a", .directions = {StudyDirection::maximize}, .journal = folder / "j"});
        }) == (folder / "j").string() + ": the study a has different directions");
}

TEST_CASE("bytes that aren't UTF-8 don't end a study") {
  const toy::Folder folder;
  {
    etude::Study study({.journal = folder / "j"});
    auto trial = study.ask();
    trial.set_user_attr("error", "\xff");
    study.tell(trial, 1);
  }
  CHECK(etude::Study({.journal = folder / "j"}).trials().at(0).user_attrs["error"] == "\xEF\xBF\xBD");
  CHECK(fault([&] { etude::Study({.study_name = "\xff", .journal = folder / "j"}); }) ==
        "study_name isn't UTF-8");
}

TEST_CASE("records that aren't Optuna's are shown, and nothing in them is believed") {
  const toy::Folder folder;
  const std::string begin = R"({"op_code":0,"worker_id":"w","study_name":"etude","directions":[1]})"
                            "\n"
                            R"({"op_code":4,"worker_id":"w","study_id":0,"datetime_start":null})"
                            "\n";
  const auto fault_of_record = [&](const std::string& record) {
    toy::write_text(folder / "j", begin + record + "\n");
    const auto text = toy::fault_of([&] { etude::Study({.journal = folder / "j"}); });
    CHECK(text.starts_with("the journal has the record {"));
    return text.substr(std::min(text.size(), text.find("one of Optuna's: ") + 17));
  };
  const auto param = [&](const std::string& value, const std::string& distribution) {
    return fault_of_record(
        R"({"op_code":5,"worker_id":"w","trial_id":0,"param_name":"x","param_value_internal":)" + value +
        R"(,"distribution":")" + distribution + R"("})");
  };
  const std::string choices = R"({\"name\":\"CategoricalDistribution\",\"attributes\":{\"choices\":[1]}})";
  CHECK(param("1", choices) == "a value is 1: must be one of 1");
  CHECK(param("-1", choices) == "a value is -1: must be one of 1");
  CHECK(
      fault_of_record(R"({"op_code":4,"worker_id":"w","study_id":0,"datetime_start":null,"user_attrs":5})") ==
      "attributes must be objects");
  CHECK(fault_of_record(R"({"op_code":6,"worker_id":"w","trial_id":1e300,"state":1,"values":[1]})") ==
        "an id is 1e+300: must be a whole number");
  CHECK(fault_of_record(R"({"op_code":6,"worker_id":"w","trial_id":0,"state":7,"values":null})") ==
        "the state is 7: must be from 0 to 4");
  CHECK(fault_of_record(R"({"op_code":0,"worker_id":"w","study_name":"b","directions":[3]})") ==
        "the direction is 3: must be from 0 to 2");
  CHECK(fault_of_record(R"({"op_code":184467440737095516160,"worker_id":"w"})") ==
        "the value is 1.844674407370955e+20: must be a whole number from -2147483648 to 2147483647");
  CHECK(fault_of_record(R"({"op_code":0,"worker_id":"w"})") != "");
  CHECK(
      fault_of_record(
          R"({"op_code":4,"worker_id":"w","study_id":0,"intermediate_values":{"a":1},"datetime_start":null})") !=
      "");
}

/// A journal as Optuna writes it, with a study "etude" that has one trial.
class Journal {
 public:
  Journal() { add(R"("op_code":0,"study_name":"etude","directions":[1])"); }
  void add(const std::string& members) { text_ += R"({"worker_id":"optuna",)" + members + "}\n"; }
  void add_param(int trial, const std::string& name, const std::string& value, const std::string& kind,
                 const std::string& attributes) {
    const nlohmann::json distribution = R"({"name": ")" + kind + R"(", "attributes": )" + attributes + "}";
    add(fmt::format(
        R"("op_code":5,"trial_id":{},"param_name":"{}","param_value_internal":{},"distribution":{})", trial,
        name, value, distribution.dump()));
  }
  void begin_trial(int study = 0) {
    add(fmt::format(R"("op_code":4,"study_id":{},"datetime_start":"2026-11-27T17:55:03.509634+00:00")",
                    study));
  }
  void complete(int trial, const std::string& values) {
    add(fmt::format(R"("op_code":6,"trial_id":{},"state":1,"values":{})", trial, values));
  }
  etude::Study::Options in(const toy::Folder& folder) const {
    toy::write_text(folder / "j", text_);
    return {.journal = folder / "j"};
  }

 private:
  std::string text_;
};

TEST_CASE("choices may be lists, tuples and null, in this study and in another one") {
  const toy::Folder folder;
  Journal journal;
  journal.begin_trial();
  journal.add_param(0, "widths", "1", "CategoricalDistribution", R"({"choices": [[64], [64, 32], null]})");
  journal.complete(0, "[96.0]");
  etude::Study study(journal.in(folder));
  CHECK(study.best_trial()->param("widths").dump() == "[64,32]");
  auto trial = study.ask();
  const etude::Choices same{nlohmann::ordered_json::parse("[[64], [64, 32], null]")};
  const auto value = trial.suggest("widths", same);
  CHECK((value.is_null() || value.is_array()));
  CHECK(fault([&] {
          study.ask().suggest("y", etude::Choices{{std::numeric_limits<double>::infinity()}});
        }).ends_with("choices must have finite numbers"));
}

TEST_CASE("what Etude can't use is left alone, and named if the study asks for it") {
  const toy::Folder folder;
  Journal journal;
  journal.begin_trial();
  journal.add_param(0, "big", "5.0", "IntDistribution",
                    R"({"log": false, "step": 1, "low": 0, "high": 1000000000000000000000})");
  journal.add_param(0, "wide", "5.0", "FloatDistribution",
                    R"({"step": null, "low": -Infinity, "high": Infinity, "log": false})");
  journal.add_param(0, "later", "5.0", "QuantileDistribution", R"({"q": 3})");
  journal.add_param(0, "x", "0.5", "FloatDistribution",
                    R"({"step": null, "low": 0.0, "high": 1.0, "log": false})");
  journal.complete(0, "[1.0]");
  etude::Study study(journal.in(folder));
  CHECK(study.trials().at(0).params == std::map<std::string, double>{{"x", 0.5}});
  auto trial = study.ask();
  trial.suggest_float("x", {.low = 0, .high = 1});
  CHECK(fault([&] {
          trial.suggest_int("big", {.low = 0, .high = 9});
        }).starts_with("big can't be suggested in the study etude: in trial 0, "));
  CHECK(fault([&] {
          trial.suggest_float("wide", {.low = 0, .high = 9});
        }).starts_with("wide can't be suggested in the study etude: in trial 0, "));
  CHECK(fault([&] { trial.suggest_float("later", {.low = 0, .high = 9}); }) ==
        "later can't be suggested in the study etude: in trial 0, the distribution is a "
        "QuantileDistribution: must "
        "be a FloatDistribution, IntDistribution or CategoricalDistribution");
}

TEST_CASE("nothing of another study in the journal matters but its trials' ids") {
  const toy::Folder folder;
  Journal journal;
  journal.add(R"("op_code":0,"study_name":"other","directions":[1,2])");
  journal.begin_trial(1);
  journal.add_param(0, "x", "70000", "UnknownDistribution", "{}");
  journal.add(R"("op_code":7,"trial_id":0,"step":0,"intermediate_value":"nonsense")");
  journal.complete(0, "null");
  journal.begin_trial(0);
  journal.add(R"("op_code":10,"study_id":"of Rustuna","trial_ids":null)");
  journal.complete(1, "[4]");
  CHECK(etude::Study(journal.in(folder)).best_trial()->values == std::vector<double>{4});
}

TEST_CASE("the distributions of Optuna 2 are read") {
  const toy::Folder folder;
  Journal journal;
  journal.begin_trial();
  journal.add_param(0, "a", "0.5", "UniformDistribution", R"({"low": 0.0, "high": 1.0})");
  journal.add_param(0, "b", "0.5", "LogUniformDistribution", R"({"low": 0.001, "high": 1.0})");
  journal.add_param(0, "c", "0.3", "DiscreteUniformDistribution", R"({"low": 0.0, "high": 0.9, "q": 0.3})");
  journal.add_param(0, "d", "3.0", "IntUniformDistribution", R"({"step": 2, "low": 1, "high": 9})");
  journal.add_param(0, "e", "3.0", "IntLogUniformDistribution", R"({"step": 1, "low": 1, "high": 9})");
  const auto found = etude::Study(journal.in(folder)).trials().at(0).distributions;
  using etude::FloatRange, etude::IntRange;
  CHECK((found.at("a") == etude::Distribution(FloatRange{0, 1})));
  CHECK((found.at("b") == etude::Distribution(FloatRange{0.001, 1, true})));
  CHECK((found.at("c") == etude::Distribution(FloatRange{0, 0.9, false, 0.3})));
  CHECK((found.at("d") == etude::Distribution(IntRange{1, 9, false, 2})));
  CHECK((found.at("e") == etude::Distribution(IntRange{1, 9, true})));
}

TEST_CASE("values that Optuna stores without checks are read") {
  const toy::Folder folder;
  Journal journal;
  for (int i = 0; i < 4; ++i) journal.begin_trial();
  // Enqueued with a value outside the range.
  journal.add_param(0, "lr", "0.0", "FloatDistribution",
                    R"({"step": null, "low": 0.1, "high": 1.0, "log": true})");
  journal.add_param(0, "x", "Infinity", "FloatDistribution",
                    R"({"step": null, "low": 0.0, "high": 1.0, "log": false})");
  journal.add_param(1, "lr", "0.5", "FloatDistribution",
                    R"({"step": null, "low": 0.1, "high": 1.0, "log": true})");
  journal.add_param(1, "y", "5.0", "FloatDistribution",
                    R"({"step": null, "low": 0.0, "high": 1.0, "log": false})");
  journal.add_param(1, "n", "12.0", "IntDistribution", R"({"log": false, "step": 2, "low": 1, "high": 9})");
  // Two processes wrote different kinds at the same time; Optuna ignores the second.
  journal.add_param(2, "lr", "3.0", "IntDistribution", R"({"log": false, "step": 1, "low": 1, "high": 9})");
  journal.add(R"("op_code":7,"trial_id":1,"step":100000000000000000000,"intermediate_value":1.0)");
  journal.add(R"("op_code":7,"trial_id":1,"step":-2,"intermediate_value":NaN)");
  journal.complete(0, "null");
  journal.complete(1, "[-Infinity]");
  journal.complete(2, "[NaN]");
  journal.complete(3, "[1.0, 2.0]");
  const auto trials = etude::Study(journal.in(folder)).trials();
  CHECK(trials[0].params.empty());
  CHECK(trials[1].params == std::map<std::string, double>{{"lr", 0.5}, {"n", 12}, {"y", 5}});
  CHECK(trials[1].param("y") == 5.0);
  CHECK(trials[1].param("n") == 12);
  CHECK(trials[2].params.empty());
  CHECK(trials[1].intermediate_values.size() == 1);
  CHECK(std::isnan(trials[1].intermediate_values.at(-2)));
  CHECK(trials[1].state == TrialState::complete);
  for (const std::size_t number : {0UL, 2UL, 3UL}) {
    CHECK(trials[number].state == TrialState::fail);
    CHECK(trials[number].values.empty());
  }
}

}  // namespace study_study_test
