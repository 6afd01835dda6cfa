#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "tools/program.hpp"
#include "tools/trained.hpp"

namespace tools_compare_test {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using toy::contains;

// A run as another program might write it, with a handwritten history.
std::string by_hand(const fs::path& folder, const std::string& history) {
  const auto checkpoint = folder / "checkpoint-40";
  fs::create_directories(checkpoint);
  toy::write_text(checkpoint / "trainer_state.json",
                  R"({"global_step": 40, "max_steps": 50, "epoch": 1.5, "log_history": [)" + history + "]}");
  return folder.string();
}

TEST_CASE("metrics, steps, and the arguments that differ are compared") {
  const toy::TrainedRun slow(0.01), fast(0.1);
  const auto ran = toy::etude_program("compare", slow.path, fast.path + "/", "--json");
  REQUIRE(ran.end == "exit 0");
  const auto json = ran.json();
  CHECK(json["differing_arguments"] == Json{"learning_rate"});
  const auto& first = json["runs"][0];
  CHECK(first["path"] == slow.path);
  CHECK(first["checkpoint"] == slow.checkpoint(8).string());
  CHECK(first["global_step"] == 8);
  CHECK(first["epoch"] == 2.0);
  CHECK(first["arguments"] == Json{{"learning_rate", 0.01}});
  CHECK(json["runs"][1]["arguments"] == Json{{"learning_rate", 0.1}});
  CHECK(first["best"]["eval_loss"]["value"] == *slow.state.best_metric);
  CHECK(first["best"]["eval_loss"]["step"] == *slow.state.best_global_step);
  // Logged at the end of the training, so it is only in the trainer_state.json of the run's folder.
  CHECK(first["train_runtime"] == slow.state.log_history.back().at("train_runtime"));

  const auto text = toy::etude_program("compare", slow.path, fast.path).out;
  for (const auto* part : {"learning_rate", "0.01", "0.1", "best eval_loss", "last eval_loss", "time"}) {
    CAPTURE(part);
    CHECK(contains(text, part));
  }
  CHECK(!contains(text, "output_dir"));
  CHECK(!contains(text, "eval_steps"));
}

TEST_CASE("the best of a history is the lowest loss, and the last is the last") {
  const toy::Folder folder;
  const auto path =
      by_hand(folder / "a", R"({"loss": 2.5, "step": 10, "epoch": 0.4}, {"eval_loss": NaN, "step": 10}, )"
                            R"({"eval_loss": 0.25, "eval_accuracy": 0.9, "step": 20}, )"
                            R"({"eval_loss": 0.5, "eval_accuracy": 0.8, "eval_runtime": 3.5, "step": 30})");
  const auto json = toy::etude_program("compare", path, "--json").json();
  const auto& run = json["runs"][0];
  CHECK(run["last"] ==
        Json::parse(R"({"loss": 2.5, "eval_loss": 0.5, "eval_accuracy": 0.8, "eval_runtime": 3.5})"));
  CHECK(run["best"] == Json::parse(R"({"eval_loss": {"value": 0.25, "step": 20}})"));
  CHECK(run["max_steps"] == 50);
  const auto text = toy::etude_program("compare", path).out;
  CHECK(contains(text, "40 of 50"));
  CHECK(contains(text, "0.25 at step 20"));
  CHECK(!contains(text, "runtime"));
}

TEST_CASE("an evaluation after the training is neither the last nor the best, unless the training went on") {
  const toy::Folder folder;
  const std::string ended = R"({"eval_loss": 0.5, "step": 40}, {"train_runtime": 2.0, "step": 40}, )"
                            R"({"eval_loss": 0.25, "step": 40})";
  const auto over = by_hand(folder / "over", ended),
             went_on = by_hand(folder / "went-on", ended + R"(, {"eval_loss": 0.75, "step": 45})");
  const auto runs = toy::etude_program("compare", over, went_on, "--json").json()["runs"];
  CHECK(runs[0]["last"]["eval_loss"] == 0.5);
  CHECK(runs[0]["best"]["eval_loss"] == Json::parse(R"({"value": 0.5, "step": 40})"));
  CHECK(runs[0]["train_runtime"] == 2.0);
  CHECK(runs[1]["last"]["eval_loss"] == 0.75);
  // A step's log that counts tokens isn't mistaken for the summary.
  const auto tokens = by_hand(folder / "tokens", R"({"loss": 2.5, "train_runtime": 2.0, "step": 40}, )"
                                                 R"({"eval_loss": 0.25, "step": 40})");
  CHECK(toy::etude_program("compare", tokens, "--json").json()["runs"][0]["last"]["eval_loss"] == 0.25);
}

TEST_CASE("the time of a part of the steps says that the run was resumed") {
  const toy::Folder folder;
  const auto line = [](const std::string& steps_per_second) {
    return R"({"train_runtime": 2.0, "train_steps_per_second": )" + steps_per_second + R"(, "step": 40})";
  };
  const auto whole = by_hand(folder / "whole", line("20.0")), part = by_hand(folder / "part", line("10.0"));
  CHECK(!contains(toy::etude_program("compare", whole).out, "resumed"));
  CHECK(contains(toy::etude_program("compare", part).out, "2.0 s since it was resumed"));
}

TEST_CASE("many runs stand below one another") {
  const toy::Folder folder;
  std::vector<std::string> words{"compare"};
  for (int i = 0; i < 12; ++i)
    words.push_back(by_hand(folder / ("run-" + std::to_string(i)), R"({"loss": 2.5, "step": 10})"));
  const auto ran = toy::run_program(ETUDE_TOOL, words);
  CHECK(ran.end == "exit 0");
  for (int i = 0; i < 12; ++i) CHECK(contains(ran.out, "run-" + std::to_string(i)));
  std::size_t begin = 0, widest = 0;
  for (auto end = ran.out.find('\n'); end != ran.out.npos; begin = end + 1, end = ran.out.find('\n', begin))
    widest = std::max(widest, end - begin);
  CHECK(widest > 60);
  CHECK(widest <= 110);
}

TEST_CASE("what isn't a run is refused") {
  const toy::Folder folder;
  const auto ran = toy::etude_program("compare", std::string(folder));
  CHECK(ran.end == "exit 3");
  CHECK(contains(ran.err, std::string(folder) + " is neither a checkpoint nor the folder of a run"));
}

}  // namespace tools_compare_test
