#include "etude/integrations/comet/archive.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utime.h>

#include <csignal>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "etude/io/folder_lock.hpp"
#include "integrations/comet/experiments.hpp"

namespace integrations_comet_archive_test {

using namespace comets;

const std::time_t an_hour_ago = std::time(nullptr) - 3600;

/// The leftovers of a process that was killed an hour ago.
void leave(const fs::path& folder, const std::string& key, const std::string& messages) {
  fs::create_directories(folder);
  const Json info{{"offline_id", key},     {"start_time", 7},      {"stop_time", 7},
                  {"tags", Json::array()}, {"workspace", nullptr}, {"project_name", nullptr}};
  toy::write_text(folder / "experiment.json", info.dump());
  toy::write_text(folder / "messages.json", messages);
  const utimbuf times{an_hour_ago, an_hour_ago};
  REQUIRE(::utime((folder / "messages.json").c_str(), &times) == 0);
}

TEST_CASE("a killed process's messages become an archive, except an incomplete one") {
  const Variables none;
  const toy::Folder folder;
  const std::string line = R"({"payload":{"key":"k","value":1},"type":"log_other"})";
  leave(folder / "comet/.killed.partial", "killed", line + "\n" + line + "\n" + line.substr(0, 20));
  leave(folder / "comet/.atonce.partial", "atonce", line.substr(0, 20));
  toy::write_text(folder / "comet/.killed.partial/asset-0", "bytes");
  toy::write_text(folder / "comet/killed.zip.tmp.x7", "half a zip");
  // The zip was complete, and the process was killed before it removed the folder.
  leave(folder / "comet/.zipped.partial", "zipped", line + "\n");
  toy::write_text(folder / "comet/zipped.zip", "as it was");
  // One is still being written, and the others aren't Comet's.
  leave(folder / "comet/.alive.partial", "alive", line + "\n");
  const etude::detail::FolderLock alive(folder / "comet/.alive.partial");
  fs::create_directories(folder / "comet/.checkpoint-4.0123.partial");
  fs::create_directories(folder / "comet/visible.partial");

  const auto archives = folder / "comet";
  etude::Trainer<CometCallback> trainer(toy::options(arguments(folder)), offline(folder));
  trainer.train();
  CHECK(toy::read_text(archives / "zipped.zip") == "as it was");
  fs::remove(archives / "zipped.zip");
  const auto found = experiments(archives);
  REQUIRE(found.size() == 2);
  for (const auto& one : found) {
    CHECK(one.messages.size() == (one.key() == "killed" ? 2 : 0));
    CHECK(one.files.contains("asset-0") == (one.key() == "killed"));
    CHECK(one.info.at("customer_error_reported") == true);
    CHECK(one.info.at("stop_time") == an_hour_ago * 1000);
  }
  auto left = toy::names_in(archives);
  left.erase("." + trainer.callback<CometCallback>().state.run_key + ".partial");
  CHECK(left == toy::Names{"killed.zip", "atonce.zip", ".alive.partial", ".checkpoint-4.0123.partial",
                           "visible.partial"});
}

TEST_CASE("leftovers of a finished training aren't marked as cut short, and anything but a file is lost") {
  const Variables none;
  const toy::Folder folder;
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::warning;
  etude::Trainer<CometCallback> trainer(toy::options(args), offline(folder));
  trainer.train();
  // Simulates a kill at this point.
  const auto key = trainer.callback<CometCallback>().state.run_key;
  const auto left = "." + key + ".partial";
  fs::create_directories(folder / "left");
  fs::copy(folder / "comet" / left, folder / "left" / left);
  fs::create_symlink("/nonexistent", folder / "left" / left / "asset-0");
  const auto notices = etude::detail::comet::Archive::rescue(folder / "left");
  REQUIRE(notices.size() == 1);
  CHECK(toy::contains(notices[0].text, "1 files of it were lost"));
  CHECK(notices[0].level == etude::LogLevel::warning);
  const auto found = experiments(folder / "left");
  REQUIRE(found.size() == 1);
  CHECK(found[0].info.at("customer_error_reported") == false);
  CHECK(found[0].info.at("stop_time") > found[0].info.at("start_time"));

  fs::create_symlink("/nonexistent", folder / "comet" / left / "asset-0");
  const auto said = toy::printed([&] { trainer.callback<CometCallback>().open_run = {}; }, STDERR_FILENO);
  CHECK(toy::contains(said, " and 1 were lost"));
}

/// Makes the disk full after the second step.
struct FillsTheDisk {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step != 2) return;
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  void on(const etude::TrainEnd&) {
    const rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, SIG_DFL);
  }
};

TEST_CASE("a full disk is reported once, counted, and stops no training") {
  const Variables none;
  const toy::Folder folder;
  auto args = arguments(folder);
  args.save_strategy = etude::SaveStrategy::no;
  args.log_level = etude::LogLevel::warning;
  std::string said;
  {
    // Not captured, because captured output goes to a file, which is limited too.
    etude::Trainer<FillsTheDisk, CometCallback> trainer(toy::options(args), FillsTheDisk{}, offline(folder));
    trainer.train();
    CHECK(trainer.state().global_step == 4);
    said = toy::printed([&] { trainer.callback<CometCallback>() = {}; }, STDERR_FILENO);
  }
  const auto found = experiments(folder / "comet");
  REQUIRE(found.size() == 1);
  CHECK(found[0].steps("train/loss") == std::vector{1});
  CHECK(toy::contains(said, "were lost"));
  CHECK_FALSE(toy::contains(said, " 0 were lost"));
}

}  // namespace integrations_comet_archive_test
