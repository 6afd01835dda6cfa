#include "etude/callbacks/samples_to_folder.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/formats/png.hpp"
#include "etude/formats/wav.hpp"
#include "etude/testing/laws.hpp"

namespace callbacks_samples_to_folder_test {

using etude::SamplesToFolderCallback;
using toy::names_in;

etude::TrainerOptions options(const std::string& folder) {
  auto args = toy::arguments();
  args.output_dir = folder;
  return toy::options(args, 2);
}

TEST_CASE("samples become files of their step, with captions beside them") {
  struct Logs {
    void on(const etude::StepEnd& e) const {
      e.log_text("eval_story", "Once upon a step");
      e.log_image("cats/first", torch::eye(3), "a diagonal cat");
      e.log_audio("mew", torch::zeros({4}), 8000);
    }
  };
  const toy::Folder folder;
  etude::Trainer<SamplesToFolderCallback, Logs> trainer(options(folder));
  trainer.train();
  CHECK(names_in(folder / "samples") == toy::Names{"step-1", "step-2"});
  const auto step = folder / "samples/step-2";
  CHECK(names_in(step) == toy::Names{"cats", "eval_story.txt", "mew.wav"});
  CHECK(names_in(step / "cats") == toy::Names{"first.caption.txt", "first.png"});
  CHECK(toy::read_text(step / "eval_story.txt") == "Once upon a step");
  CHECK(toy::read_text(step / "cats/first.caption.txt") == "a diagonal cat\n");
  const auto pixels = (255 * torch::eye(3)).to(torch::kByte).unsqueeze(2).contiguous();
  CHECK(toy::read_text(step / "cats/first.png") == etude::png_file(pixels));
  CHECK(toy::read_text(step / "mew.wav") == etude::wav_file(torch::zeros({4, 1}), 8000));
}

TEST_CASE("a sample of the same step and name replaces the earlier one") {
  const toy::Folder folder, other;
  etude::Trainer<SamplesToFolderCallback> trainer(options(folder),
                                                  SamplesToFolderCallback{.folder = other / "deep"});
  trainer.log_text("t", "first");
  trainer.log_text("t", "second");
  CHECK(toy::read_text(other / "deep/step-0/t.txt") == "second");
  CHECK(names_in(other / "deep/step-0") == toy::Names{"t.txt"});
}

TEST_CASE("a folder that can't be written is an error") {
  const toy::Folder folder;
  toy::write_text(folder / "samples", "a file");
  etude::Trainer<SamplesToFolderCallback> trainer(options(folder));
  CHECK_THROWS_AS(trainer.log_text("t", "x"), etude::CheckpointError);
}

TEST_CASE("writing samples to a folder keeps the laws of callbacks") {
  CHECK(etude::laws::broken<SamplesToFolderCallback>([](const std::filesystem::path& folder) {
          return SamplesToFolderCallback{.folder = folder.string()};
        }) == std::vector<std::string>());
}

}  // namespace callbacks_samples_to_folder_test
