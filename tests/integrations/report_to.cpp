#include "etude/integrations/report_to.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

#include "common/folder.hpp"
#include "common/toy.hpp"

namespace integrations_report_to_test {

using etude::CodeCarbonCallback;
using etude::MLflowCallback;
using etude::TensorBoardCallback;

etude::TrainerOptions options_with(const toy::Folder& folder, std::vector<std::string> report_to) {
  auto args = toy::arguments();
  args.output_dir = std::string(folder);
  args.report_to = std::move(report_to);
  return toy::options(args);
}

using Names = std::vector<std::string_view>;

/// The trackers among a trainer's callbacks.
template <class Trainer>
Names trackers_of(Trainer& trainer) {
  Names found;
  for (const auto name : trainer.callback_names())
    for (const auto& tracker : etude::trackers)
      if (tracker.callback == name) found.push_back(name);
  return found;
}

TEST_CASE("a trainer gets the trackers that report_to names, and each of them once") {
  toy::Folder folder;
  etude::Trainer<etude::RuntimeCallbacks> trainer(options_with(folder, {"codecarbon", "tensorboard"}));
  CHECK(etude::add_trackers(trainer).size() == 2);
  CHECK(trackers_of(trainer) == Names{"TensorBoardCallback", "CodeCarbonCallback"});
  CHECK(etude::add_trackers(trainer).empty());
  trainer.callback<CodeCarbonCallback>().force_cpu_power = 10;
  trainer.train();
  CHECK(toy::names_in(std::string(folder)).contains("emissions.csv"));
  CHECK(toy::names_in(std::string(folder)).contains("runs"));
}

TEST_CASE("a tracker that is already in the list isn't added again") {
  toy::Folder folder;
  etude::Trainer<TensorBoardCallback, etude::RuntimeCallbacks> trainer(options_with(folder, {"tensorboard"}));
  CHECK(etude::add_trackers(trainer).empty());
  trainer.train();
  CHECK(toy::names_in(folder / "runs").size() == 1);
}

TEST_CASE("report_to=all adds the trackers that the environment is ready for") {
  toy::Folder folder;
  for (const char* address : {"", "http://127.0.0.1:1"}) {
    ::setenv("MLFLOW_TRACKING_URI", address, 1);
    etude::Trainer<etude::RuntimeCallbacks> trainer(options_with(folder, {"all"}));
    etude::add_trackers(trainer);
    const auto names = trackers_of(trainer);
    const auto has = [&](std::string_view name) { return std::ranges::count(names, name) == 1; };
    CHECK(has("TensorBoardCallback"));
    CHECK(has("MLflowCallback") == (*address != '\0'));
    CHECK(!has("AzureMLCallback"));
  }
  ::unsetenv("MLFLOW_TRACKING_URI");
}

TEST_CASE("without a name, and with `none`, no tracker is added") {
  toy::Folder folder;
  for (const auto& names : {std::vector<std::string>(), {"none"}}) {
    etude::Trainer<etude::RuntimeCallbacks> trainer(options_with(folder, names));
    CHECK(etude::add_trackers(trainer).empty());
  }
}

}  // namespace integrations_report_to_test
