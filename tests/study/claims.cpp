#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "etude/study/study.hpp"

/// Trials claimed by several processes. Two objects on one journal lock each other out as two processes do.
namespace study_claims_test {

using etude::Study;
using etude::TrialState;

TEST_CASE("as many trials are claimed as the study has, the queue's first") {
  const toy::Folder folder;
  Study study({.journal = folder / "j"});
  study.enqueue_trial({{"x", 3}});
  auto first = study.claim(3);
  REQUIRE(first);
  CHECK(first->number() == 0);
  CHECK(first->suggest_int("x", {.low = 0, .high = 9}) == 3);
  const auto second = study.claim(3), third = study.claim(3);
  CHECK(second.value().number() == 1);
  CHECK(third.value().number() == 2);
  CHECK_FALSE(study.claim(3));
  CHECK(study.trials().size() == 3);
  study.tell(*second, 1);
  CHECK_FALSE(study.claim(3));
  CHECK(study.claim(4));
}

TEST_CASE("a queue that is longer than the study isn't emptied") {
  const toy::Folder folder;
  Study study({.journal = folder / "j"});
  for (int i = 0; i < 3; ++i) study.enqueue_trial({});
  const auto first = study.claim(2), second = study.claim(2);
  CHECK(second);
  CHECK_FALSE(study.claim(2));
  CHECK(study.trials()[2].state == TrialState::waiting);
}

TEST_CASE("a trial whose process has ended is claimed by another, which goes on with its values") {
  const toy::Folder folder;
  double rate = 0;
  {
    Study study({.journal = folder / "j", .seed = 5});
    auto trial = study.claim(2);
    rate = trial->suggest_float("lr", {.low = 0, .high = 1});
    trial->report(0.5, 1);
    Study other({.journal = folder / "j", .seed = 5});
    auto its = other.claim(2);
    CHECK(its->number() == 1);
    CHECK_FALSE(its->is_continued());
    CHECK_FALSE(other.claim(2));
    CHECK(other.others_run());
    other.tell(*its, 1);
  }
  Study study({.journal = folder / "j", .seed = 5});
  CHECK(study.others_run());
  auto trial = study.claim(2);
  REQUIRE(trial);
  CHECK(trial->number() == 0);
  CHECK(trial->is_continued());
  CHECK(trial->suggest_float("lr", {.low = 0, .high = 1}) == rate);
  trial->report(0.7, 1);  // the first report of a step counts
  CHECK(trial->frozen().intermediate_values.at(1) == 0.5);
  study.tell(*trial, 2);
  trial.reset();
  CHECK(toy::names_in(std::string(folder)) == toy::Names{"j"});
  CHECK_FALSE(study.claim(2));
  CHECK_FALSE(study.others_run());
}

TEST_CASE("trials of programs that don't lock are left to them") {
  const toy::Folder folder;
  Study asks({.journal = folder / "j"});
  const auto asked = asks.ask();
  std::ofstream(folder / "j", std::ios::app)
      << R"({"op_code":4,"worker_id":"optuna","study_id":0,"datetime_start":null})"
      << "\n";
  std::ofstream(folder / "j.0.1.lock");  // left by a claim that lost the trial to Optuna
  Study study({.journal = folder / "j"});
  CHECK_FALSE(study.claim(2));
  CHECK_FALSE(study.others_run());
  CHECK(study.claim(3)->number() == 2);
}

TEST_CASE("a trial that nobody holds is claimed, though its lock file was removed") {
  const toy::Folder folder;
  {
    Study study({.journal = folder / "j"});
    study.tell(study.claim(2).value(), 1);
    study.claim(2);
  }
  std::filesystem::remove(folder / "j.0.1.lock");
  Study study({.journal = folder / "j"});
  const auto again = study.claim(2);
  REQUIRE(again);
  CHECK(again->number() == 1);
  CHECK(again->is_continued());
  CHECK_FALSE(Study({.journal = folder / "j"}).claim(2));  // it is held again
}

TEST_CASE("a journal that has lost its end loses no trial, wherever it is cut") {
  const toy::Folder folder;
  {
    Study study({.journal = folder / "j"});
    for (int i = 0; i < 3; ++i) {
      auto trial = study.claim(3).value();
      trial.suggest_float("x", {.low = 0, .high = 1});
      trial.report(1, 1);
      study.tell(trial, i);
    }
  }
  const auto text = toy::read_text(folder / "j");
  for (auto size = text.find('\n') + 1; size <= text.size(); size += 41) {
    CAPTURE(size);
    toy::write_text(folder / "cut", text.substr(0, size));
    Study study({.journal = folder / "cut"});
    while (auto trial = study.claim(3)) study.tell(*trial, 5);
    CHECK_FALSE(study.others_run());
    const auto trials = Study({.journal = folder / "cut"}).trials();
    CHECK(trials.size() == 3);
    for (const auto& trial : trials) CHECK(trial.state == TrialState::complete);
  }
}

TEST_CASE("a process runs the trial that another has claimed for it") {
  const toy::Folder folder;
  Study parent({.journal = folder / "j"});
  auto claimed = parent.claim(1);
  CHECK(claimed->lock_descriptor() >= 0);
  Study child({.journal = folder / "j"});
  auto trial = child.running_trial(0, true);
  CHECK(trial.is_continued());
  child.tell(trial, 4);
  CHECK(parent.trials().at(0).values == std::vector<double>{4});
  CHECK(toy::fault_of<etude::ArgumentError>([&] { child.running_trial(0); }) == "trial 0 isn't running");
  CHECK(toy::fault_of<etude::ArgumentError>([&] { child.running_trial(7); }) == "trial 7 isn't running");
}

TEST_CASE("a trial that is given up without a result is claimed again, by the same process too") {
  const toy::Folder folder;
  Study study({.journal = folder / "j"});
  study.claim(1);
  for (int i = 0; i < 3; ++i) {
    const auto again = study.claim(1);
    REQUIRE(again);
    CHECK(again->number() == 0);
    CHECK(again->is_continued());
  }
}

TEST_CASE("several processes that claim at once run each trial once, and no trial too many") {
  const toy::Folder folder;
  std::vector<std::thread> workers;
  std::array<std::vector<std::int64_t>, 3> claimed;
  for (auto& numbers : claimed)
    workers.emplace_back([&] {
      Study study({.journal = folder / "j"});
      while (auto trial = study.claim(30)) {
        numbers.push_back(trial->number());
        study.tell(*trial, 1);
      }
    });
  for (auto& worker : workers) worker.join();
  std::multiset<std::int64_t> all;
  for (const auto& numbers : claimed) all.insert(numbers.begin(), numbers.end());
  CHECK(all.size() == 30);
  CHECK(std::set<std::int64_t>(all.begin(), all.end()).size() == 30);
  CHECK(Study({.journal = folder / "j"}).trials().size() == 30);
}

TEST_CASE("the lock of a process that ended just after it had told the result is removed") {
  const toy::Folder folder;
  Study study({.journal = folder / "j"});
  auto trial = study.claim(1);
  study.tell(*trial, 1);
  std::ofstream(folder / "j.0.0.lock");
  CHECK_FALSE(study.claim(1));
  CHECK(toy::names_in(std::string(folder)) == toy::Names{"j"});
}

TEST_CASE("a verdict of the pruner stays, whoever asks") {
  const toy::Folder folder;
  Study study({.journal = folder / "j",
               .pruner = std::make_shared<etude::SuccessiveHalvingPruner>(
                   etude::SuccessiveHalvingPruner::Options{.min_resource = 1, .reduction_factor = 2})});
  std::vector<etude::StudyTrial> trials;
  for (const double value : {1.0, 2.0}) {
    trials.push_back(study.claim(2).value());
    auto* trial = &trials.back();
    trial->report(value, 1);
    CHECK(trial->should_prune() == (value == 2));
    CHECK(trial->should_prune() == (value == 2));
  }
  Study without({.journal = folder / "j"});
  CHECK(without.running_trial(1).should_prune());
  CHECK_FALSE(without.running_trial(0).should_prune());
}

TEST_CASE("a study that is deleted while it runs is an error, not another study's trial") {
  const toy::Folder folder;
  Study other({.study_name = "other", .journal = folder / "j"}), study({.journal = folder / "j"});
  other.claim(1);
  const auto first = study.claim(5);
  std::ofstream(folder / "j", std::ios::app) << R"({"op_code":1,"worker_id":"x","study_id":1})"
                                             << "\n";
  CHECK(toy::contains(toy::fault_of([&] { study.claim(5); }), "the study etude was deleted"));
  CHECK(toy::contains(toy::fault_of([&] { study.ask(); }), "the study etude was deleted"));
}

TEST_CASE("a folder has one study's trials, whatever else its journal gets, and wherever a process ended") {
  const toy::Folder folder, other;
  Study study({.journal = folder / "j"});
  for (const char* name : {"a", "b", "c"}) Study({.study_name = name, .journal = folder / "j"});
  // A process wrote the folder's mark and ended.
  std::ofstream(folder / ".etude-search") << "0123\n";
  study.set_folder(std::string(folder));
  Study({.journal = folder / "j"}).set_folder(std::string(folder));
  const auto fault = [&](const std::string& name, const std::string& where) {
    return toy::fault_of<etude::ArgumentError>(
        [&] { Study({.study_name = name, .journal = folder / "j"}).set_folder(where); });
  };
  CHECK(toy::contains(fault("etude", other), "must be the folder in which the study etude was begun"));
  std::filesystem::create_directories(folder / "run-0");
  CHECK(toy::contains(fault("a", folder), "it has the trials of another study"));
}

TEST_CASE("trials that are tried first are enqueued once, however many processes begin") {
  const toy::Folder folder;
  Study a({.journal = folder / "j"}), b({.journal = folder / "j"});
  a.enqueue_first({{{"x", 1}}, {{"x", 2}}});
  b.enqueue_first({{{"x", 1}}, {{"x", 2}}});
  CHECK(b.trials().size() == 2);
}

TEST_CASE("a finished study that may not be written can be read") {
  const toy::Folder folder;
  {
    Study study({.journal = folder / "j"});
    study.set_folder(std::string(folder));
    study.tell(study.claim(1).value(), 3);
  }
  std::filesystem::permissions(folder / "j", std::filesystem::perms{0444});
  std::filesystem::permissions(std::string(folder), std::filesystem::perms{0555});
  // Root may write any file.
  const bool is_root = ::geteuid() == 0;
  if (is_root) REQUIRE(::seteuid(65534) == 0);
  std::string fault;
  {
    Study study({.journal = folder / "j"});
    study.set_folder(std::string(folder));
    study.enqueue_first({{{"x", 1}}});
    CHECK_FALSE(study.claim(1));
    CHECK_FALSE(study.others_run());
    CHECK(study.best_trial()->values == std::vector<double>{3});
    fault = toy::fault_of<etude::CheckpointError>([&] { study.ask(); });
  }
  if (is_root) REQUIRE(::seteuid(0) == 0);
  std::filesystem::permissions(std::string(folder), std::filesystem::perms{0755});
  CHECK(fault == (folder / "j").string() + ": can't be locked: Permission denied");
}

TEST_CASE("what is deferred is written at once, or not at all") {
  const toy::Folder folder;
  Study study({.journal = folder / "j", .seed = 3}), reader({.journal = folder / "j"});
  {
    auto trial = study.claim(1);
    trial->defer();
    trial->suggest_float("x", {.low = 0, .high = 1});
    trial->discard();
  }
  CHECK(reader.trials().at(0).params.empty());
  Study again({.journal = folder / "j", .seed = 3});
  auto trial = again.claim(1);
  trial->defer();
  const double x = trial->suggest_float("x", {.low = 0, .high = 1});
  trial->set_user_attr("note", 1);
  CHECK(trial->frozen().params.at("x") == x);
  CHECK(reader.trials().at(0).params.empty());
  trial->record();
  CHECK(reader.trials().at(0).params.at("x") == x);
  CHECK(reader.trials().at(0).user_attrs["note"] == 1);
}

TEST_CASE("without a journal there is nothing to lock, and no trial is lost") {
  Study study({});
  auto trial = study.claim(1);
  CHECK(trial->lock_descriptor() == -1);
  CHECK_FALSE(study.claim(1));
  CHECK_FALSE(study.others_run());
  study.tell(*trial, 1);
  CHECK(study.best_trial());
}

TEST_CASE("the two trials of different studies in one journal have locks of their own") {
  const toy::Folder folder;
  Study a({.study_name = "a", .journal = folder / "j"}), b({.study_name = "b", .journal = folder / "j"});
  const auto of_a = a.claim(1), of_b = b.claim(1);
  CHECK(of_a);
  CHECK(of_b);
  CHECK_FALSE(Study({.study_name = "a", .journal = folder / "j"}).claim(1));
}

}  // namespace study_claims_test
