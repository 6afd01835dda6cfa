#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/folder.hpp"
#include "common/full_run.hpp"
#include "common/toy.hpp"
#include "etude/trainer.hpp"

namespace loop_stream_state_test {

/// An endless stream that counts how often its state is requested.
struct Counter {
  std::int64_t* times;
  std::int64_t place = 0;
  std::optional<etude::Example> next() {
    const auto x = torch::full({1}, 0.001 * static_cast<double>(place++));
    return etude::Example{{x}, {2 * x + 1}};
  }
  void reset() { place = 0; }
  nlohmann::json state() const {
    ++*times;
    return place;
  }
  void load_state(const nlohmann::json& state) { place = state; }
};

struct SaveOnce {
  std::int64_t step = -1;
  void on(const etude::StepEnd& e) const {
    if (e.state.global_step == step) e.control.should_save = true;
  }
};

TEST_CASE("a stream's state is asked for only when a callback saves if nothing else does") {
  toy::Folder folder, other;
  std::int64_t times = 0;
  const auto weights = [&](const std::string& in, std::int64_t steps, std::int64_t saves_at) {
    auto args = toy::arguments();
    args.output_dir = in;
    args.max_steps = steps;
    etude::Trainer<SaveOnce> trainer(
        {.model = toy::Line(), .args = args, .loss = torch::nn::MSELoss(), .train_dataset = Counter{&times}},
        SaveOnce{saves_at});
    trainer.train({.resume_from_checkpoint = etude::if_any});
    return toy::checksum_of(trainer.model().state_dict().at(0).second);
  };
  const auto whole = weights(other, 12, -1);
  CHECK(times == 1);  // at the end of the epoch
  times = 0;
  weights(folder, 7, 5);
  CHECK(times == 2);
  const auto progress = toy::read_text(folder / "checkpoint-5/training_progress.json");
  CHECK(nlohmann::json::parse(progress).at("dataset_state").at("values") == 5);
  CHECK(weights(folder, 12, -1) == whole);
}

}  // namespace loop_stream_state_test
