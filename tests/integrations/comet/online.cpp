#include "etude/integrations/comet/online.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "integrations/comet/experiments.hpp"

namespace integrations_comet_online_test {

using namespace comets;

TEST_CASE("online, unsent data waits, and the server's keys aren't stored anywhere") {
  const Variables set(Variables::Set{{"COMET_API_KEY", "a-secret-key"},
                                     {"COMET_URL_OVERRIDE", "http://someone:hidden@127.0.0.1:9/clientlib/"}});
  const toy::Folder folder;
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::info;
  auto callback = offline(folder);
  callback.online.reset();
  callback.api_key = "another-secret";
  std::string run_key;
  const auto said = toy::printed(
      [&] {
        etude::Trainer<CometCallback> trainer(toy::options(args), callback);
        trainer.train();
        run_key = trainer.callback<CometCallback>().state.run_key;
      },
      STDERR_FILENO);
  CHECK(toy::contains(said, "http://127.0.0.1:9/clientlib"));
  CHECK(toy::contains(said, "0 were dropped"));
  CHECK_FALSE(fs::exists(folder / "comet"));
  const auto spools = toy::names_in(folder / "spool");
  REQUIRE(spools.size() == 1);
  std::string all = said;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "spool"))
    if (entry.is_regular_file()) all += toy::read_text(entry.path());
  for (const auto& entry : fs::recursive_directory_iterator(folder / "out"))
    if (entry.path().extension() == ".json") all += toy::read_text(entry.path());
  for (const auto* secret : {"a-secret-key", "another-secret", "hidden", "someone"})
    CHECK_FALSE(toy::contains(all, secret));
  std::istringstream lines(toy::read_text(folder / "spool" / *spools.begin() / "entries.jsonl"));
  std::vector<std::string> types;
  int losses = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto entry = Json::parse(line);
    types.push_back(entry.at("type"));
    if (types.back() == "metric_msg")
      losses += entry.at("payload").at("metric").at("metricName") == "train/loss";
  }
  CHECK(types.front() == "open");
  CHECK(types.back() == "end");
  CHECK(losses == 4);
  CHECK(run_key.size() == 32);
}

TEST_CASE("unsent data is reported if a program only evaluates, and again if it evaluates after a training") {
  const Variables set(Variables::Set{{"COMET_API_KEY", "k"}, {"COMET_URL_OVERRIDE", "http://127.0.0.1:9"}});
  const toy::Folder folder;
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::warning;
  auto callback = offline(folder);
  callback.online.reset();
  const auto said = [&](bool trains) {
    return toy::printed(
        [&] {
          etude::Trainer<CometCallback> trainer(toy::options(args), callback);
          if (trains) trainer.train();
          trainer.evaluate();
        },
        STDERR_FILENO);
  };
  const auto count = [](const std::string& text) {
    int found = 0;
    for (auto at = text.find(" wait in "); at != text.npos; at = text.find(" wait in ", at + 1)) ++found;
    return found;
  };
  CHECK(count(said(false)) == 1);
  CHECK(count(said(true)) == 2);
}

}  // namespace integrations_comet_online_test
