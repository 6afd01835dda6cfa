// Resumes checkpoints of earlier versions of Etude, and expects the results that the training had then.
// `test_checkpoint -ns -tc="writes the checkpoint of this version"` writes another one, for a version that is
// to be released.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "common/folder.hpp"
#include "common/full_run.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/version.hpp"

namespace checkpoint_versions_test {

namespace fs = std::filesystem;

fs::path versions() { return fs::path(__FILE__).parent_path() / "versions"; }
std::string this_version() { return fmt::format("{}.{}", ETUDE_VERSION / 10000, ETUDE_VERSION / 100 % 100); }

/// 12 steps in two epochs, saved after the eighth: callbacks with state, a best model, a half-done epoch.
struct Training {
  explicit Training(const std::string& folder) {
    auto options = toy::full_options(folder, engine);
    options.args.save_steps = 8;
    trainer.emplace(std::move(options), toy::Diary{.engine = &engine});
  }
  std::mt19937 engine = {};
  std::optional<etude::Trainer<toy::Diary, toy::Quiet, etude::EarlyStoppingCallback>> trainer = {};
};

nlohmann::json outcome(Training& training) {
  nlohmann::json result;
  for (const auto& [name, tensor] : training.trainer->model().state_dict()) {
    const auto values = tensor.flatten().to(torch::kDouble);
    for (std::int64_t i = 0; i < values.numel(); ++i) result[name].push_back(values[i].item<double>());
  }
  const auto& state = training.trainer->state();
  result["state"] = {state.global_step, state.epoch, state.best_metric.value_or(-1),
                     state.best_global_step.value_or(-1), state.log_history.size()};
  return result;
}

/// The tolerance for results on another machine. The norm cancels the bias before it, so the bias's gradients
/// are rounding errors, which Adam makes large; evaluations are slightly affected.
double tolerance_of(const std::string& name) {
  if (name == "first.bias" || name == "norm.running_mean") return 0.1;
  return name == "state" ? 1e-3 : 1e-5;
}

TEST_CASE("a checkpoint of each version resumes to the outcome that its training had") {
  std::size_t count = 0;
  for (const auto& version : fs::directory_iterator(versions())) {
    CAPTURE(version.path().string());
    const toy::Folder folder;
    fs::copy(version.path(), std::string(folder), fs::copy_options::recursive);
    Training training(folder);
    training.trainer->train({.resume_from_checkpoint = (folder / "checkpoint-8").string()});
    const auto actual = outcome(training),
               expected = nlohmann::json::parse(toy::read_text(folder / "outcome.json"));
    REQUIRE(actual.size() == expected.size());
    for (const auto& each : expected.items())
      for (std::size_t i = 0; i < each.value().size(); ++i) {
        const auto name = each.key();
        CAPTURE(name);
        CHECK(std::abs(actual.at(name).at(i).get<double>() - each.value()[i].get<double>()) <
              tolerance_of(name));
      }
    ++count;
  }
  CHECK(count > 0);
  CHECK(fs::exists(versions() / this_version()));
}

TEST_CASE("writes the checkpoint of this version" * doctest::skip()) {
  const auto folder = versions() / this_version();
  REQUIRE_FALSE(fs::exists(folder));
  const toy::Folder output;
  Training training(output);
  training.trainer->train();
  fs::create_directories(folder);
  fs::copy(output / "checkpoint-8", folder / "checkpoint-8", fs::copy_options::recursive);
  toy::write_text(folder / "outcome.json", outcome(training).dump(1) + "\n");
}

}  // namespace checkpoint_versions_test
