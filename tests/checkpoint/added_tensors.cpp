#include <doctest/doctest.h>

#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/io/manifest.hpp"

namespace checkpoint_added_tensors_test {

/// A callback that adds a tensor, then changes it in place.
struct Adds {
  std::string file = "mine.safetensors";
  torch::Tensor steps = torch::zeros({1});
  void on(const etude::StepEnd&) { steps += 1; }
  void on(etude::SaveBegin& e) { e.tensors[file] = {{"steps", steps}}; }
};

etude::TrainerOptions options(const toy::Folder& folder, bool async = false) {
  auto args = toy::arguments();
  args.output_dir = folder;
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = 1;
  args.save_async = async;
  return toy::options(args, 6);
}

TEST_CASE("tensors that a callback adds to a checkpoint are in its manifest, and belong to its step") {
  for (const bool async : {false, true}) {
    const toy::Folder folder;
    etude::Trainer<Adds>(options(folder, async)).train();
    for (int step = 1; step <= 6; ++step) {
      const auto checkpoint = folder / fmt::format("checkpoint-{}", step);
      CHECK(etude::read_manifest(checkpoint).files.contains("mine.safetensors"));
      CHECK(etude::load_safetensors(checkpoint / "mine.safetensors").tensors[0].second.item<double>() ==
            step);
    }
  }
}

TEST_CASE("a callback can't add one of Etude's own files, and no checkpoint is written") {
  for (const std::string name :
       {"model.safetensors", "optimizer.safetensors", "dataset_state.safetensors", "trainer_state.json"}) {
    const toy::Folder folder;
    etude::Trainer<Adds> trainer(options(folder), Adds{.file = name});
    try {
      trainer.train();
      FAIL("it was taken");
    } catch (const etude::CheckpointError& error) {
      CHECK(std::string(error.what()).find(fmt::format("'{}': Etude uses that name", name)) !=
            std::string::npos);
    }
    CHECK(!std::filesystem::exists(folder / "checkpoint-1"));
  }
}

}  // namespace checkpoint_added_tensors_test
