#include "common/full_run.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "common/folder.hpp"
#include "common/quick_files.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/checkpoint/resume.hpp"
#include "etude/checkpoint/resume_point.hpp"
#include "etude/io/folder.hpp"

namespace checkpoint_damage_test {

namespace fs = std::filesystem;

using Trainer = etude::Trainer<toy::Quiet, toy::Diary, etude::EarlyStoppingCallback>;

struct Run {
  std::mt19937 engine;
  std::unique_ptr<Trainer> trainer;

  explicit Run(const std::string& folder) {
    auto options = toy::full_options(folder, engine);
    options.args.num_train_epochs = 1;
    options.args.gradient_accumulation_steps = 8;  // 3 steps
    options.args.eval_steps = 2;
    options.args.logging_steps = 2;
    options.file_system = std::make_shared<toy::QuickFiles>();
    trainer = std::make_unique<Trainer>(options, toy::Diary{.engine = &engine},
                                        etude::EarlyStoppingCallback{.early_stopping_patience = 5});
  }
};

// A run with checkpoints of steps 1, 2 and 3, and its result. The checkpoint of step 2 has a sharded model.
struct Whole {
  toy::Folder folder;
  std::string outcome;
  std::map<std::string, std::string> texts;  // of checkpoint-2

  Whole() {
    {
      Run run(folder);
      run.trainer->train();
      outcome = toy::outcome(*run.trainer);
    }
    shard(checkpoint(2));
    fs::remove_all(checkpoint(3));
    for (const auto& entry : fs::recursive_directory_iterator(checkpoint(2)))
      texts[entry.path().lexically_relative(checkpoint(2)).string()] = toy::read_text(entry.path());
  }

  fs::path checkpoint(int step) const { return folder / fmt::format("checkpoint-{}", step); }

  static void shard(const fs::path& checkpoint) {
    etude::FolderReader reader(checkpoint);
    toy::QuickFiles files;
    etude::FolderWriter writer(files, checkpoint, checkpoint.string() + ".partial");
    etude::write_model_files(writer, etude::read_model_files(reader), 60);
    for (const auto& [name, entry] : reader.manifest()->files)
      if (name != etude::model_file) writer.write_text(name, reader.text(name));
    writer.commit(*reader.manifest());
  }
};

const Whole& whole() {
  static const Whole instance;
  return instance;
}

// Copies of checkpoints 1 and 2, the second with one damaged file.
struct Damaged {
  toy::Folder folder;
  fs::path first = folder / "checkpoint-1", second = folder / "checkpoint-2";

  Damaged() {
    fs::copy(whole().checkpoint(1), first, fs::copy_options::recursive);
    fs::copy(whole().checkpoint(2), second, fs::copy_options::recursive);
  }
  void set(const std::string& name, const std::optional<std::string>& text) const {
    if (text)
      toy::write_text(second / name, *text);
    else
      fs::remove(second / name);
  }
  void mend(const std::string& name) const { toy::write_text(second / name, whole().texts.at(name)); }
};

// Damaged forms of a text: none at all, and truncated at every sixteenth of its length.
std::vector<std::optional<std::string>> cuts(const std::string& text) {
  std::vector<std::optional<std::string>> result{std::nullopt};
  for (std::size_t part = 0; part < 16; ++part) result.push_back(text.substr(0, text.size() * part / 16));
  return result;
}

std::string with_flipped_bit(std::string text, std::size_t at, int bit) {
  text[at] = static_cast<char>(text[at] ^ (1 << bit));
  return text;
}

// The largest number of bytes of a file to change, one at a time: ETUDE_DAMAGES, or 300.
std::size_t most_flips() {
  const char* given = std::getenv("ETUDE_DAMAGES");
  return given == nullptr ? 300 : std::stoul(given);
}

// The text with one bit flipped, for each byte or, in a long file, for most_flips() of them.
std::vector<std::optional<std::string>> flips(const std::string& text, std::mt19937& random) {
  const std::size_t most = most_flips();
  std::vector<std::optional<std::string>> result;
  for (std::size_t i = 0; i < std::min(text.size(), most); ++i)
    result.emplace_back(with_flipped_bit(text, text.size() <= most ? i : random() % text.size(),
                                         static_cast<int>(random() % 8)));
  return result;
}

TEST_CASE("the checkpoint of these tests has every kind of file") {
  std::set<std::string> names;
  for (const auto& [name, text] : whole().texts) names.insert(name);
  CHECK(names.contains("etude_manifest.json"));
  CHECK(names.contains("model.safetensors.index.json"));
  CHECK(std::ranges::count_if(names, etude::detail::is_shard_name) > 3);
  for (const auto* name :
       {"optimizer.safetensors", "optimizer.json", "random_state.safetensors", "scheduler.json",
        "trainer_state.json", "training_args.json", "training_progress.json"})
    CHECK(names.contains(name));
  const Damaged copy;
  Run run(copy.folder);
  run.trainer->train({.resume_from_checkpoint = true});
  CHECK(toy::outcome(*run.trainer) == whole().outcome);
}

TEST_CASE("a checkpoint with a missing, truncated or changed file is refused, and the file named") {
  std::mt19937 random(1);
  const Damaged copy;
  for (const auto& file : whole().texts) {
    const auto& [name, text] = file;
    CAPTURE(file.first);
    auto damages = cuts(text);
    for (auto& flip : flips(text, random)) damages.push_back(std::move(flip));
    for (const auto& damage : damages) {
      copy.set(name, damage);
      const etude::CheckpointStore store(std::string(copy.folder));
      // Without a manifest it may be another program's checkpoint.
      if (damage || name != etude::manifest_file)
        CHECK_THROWS_WITH_AS(etude::find_resume_point(copy.second, store, {}),
                             doctest::Contains(name.c_str()), etude::CheckpointError);
      const auto point = etude::find_resume_point(true, store, {.log_level = etude::LogLevel::critical});
      CHECK(point->path == copy.first);
    }
    copy.mend(name);
  }
}

TEST_CASE("a run whose newest checkpoint is damaged resumes from the previous one, to the same end") {
  std::mt19937 random(2);
  for (const auto& file : whole().texts) {
    const auto& [name, text] = file;
    CAPTURE(file.first);
    for (const auto& damage : {std::optional<std::string>(), std::optional(text.substr(0, text.size() / 2)),
                               std::optional(with_flipped_bit(text, random() % text.size(), 3))}) {
      const Damaged copy;
      copy.set(name, damage);
      Run run(copy.folder);
      run.trainer->train({.resume_from_checkpoint = true});
      CHECK(toy::outcome(*run.trainer) == whole().outcome);
      for (const int step : {1, 2, 3}) {  // the damaged checkpoint has been written again
        etude::FolderReader reader(copy.folder / fmt::format("checkpoint-{}", step));
        CHECK_NOTHROW(reader.verify());
      }
    }
  }
}

TEST_CASE("a run that is given the path of a damaged checkpoint doesn't begin") {
  for (const auto& file : whole().texts) {
    const auto& [name, text] = file;
    CAPTURE(file.first);
    const Damaged copy;
    copy.set(name, with_flipped_bit(text, text.size() / 3, 1));
    Run run(copy.folder);
    const auto before = toy::weights(*run.trainer);
    CHECK_THROWS_AS(run.trainer->train({.resume_from_checkpoint = copy.second}), etude::CheckpointError);
    CHECK(toy::weights(*run.trainer) == before);
  }
}

TEST_CASE("if every checkpoint is damaged, nothing begins, and none of them is touched") {
  const Damaged copy;
  for (const auto& checkpoint : {copy.first, copy.second})
    toy::write_text(checkpoint / "scheduler.json", "{}");
  for (const etude::TrainOptions::Resume& resume :
       {etude::TrainOptions::Resume(true), etude::TrainOptions::Resume(etude::if_any)}) {
    Run run(copy.folder);
    CHECK_THROWS_WITH_AS(run.trainer->train({.resume_from_checkpoint = resume}),
                         doctest::Contains("No valid checkpoint found in output directory"),
                         etude::CheckpointError);
    CHECK(run.trainer->state().global_step == 0);
  }
  for (const auto& checkpoint : {copy.first, copy.second})
    CHECK(toy::read_text(checkpoint / "scheduler.json") == "{}");
}

// Without a manifest, some damage can't be detected. Detected damage is reported; otherwise the training
// runs.
TEST_CASE("another program's damaged checkpoint gives one of Etude's errors or a training that ends") {
  std::mt19937 random(3);
  int refused = 0, trained = 0;
  const auto try_it = [&](const Damaged& copy) {
    Run run(copy.folder);
    try {
      run.trainer->train({.resume_from_checkpoint = copy.second});
      ++trained;
    } catch (const etude::Error&) {
      ++refused;
    }
  };
  for (const auto& file : whole().texts) {
    const auto& [name, text] = file;
    if (name == etude::manifest_file) continue;
    CAPTURE(file.first);
    const bool is_json = name.ends_with(".json");
    auto damages = cuts(text);
    for (std::size_t i = 0; i < (is_json ? std::min(text.size(), most_flips() / 2) : most_flips() / 10); ++i)
      damages.emplace_back(with_flipped_bit(text, random() % text.size(), static_cast<int>(random() % 8)));
    for (const auto& damage : damages) {
      const Damaged copy;
      fs::remove(copy.second / etude::manifest_file);
      copy.set(name, damage);
      CAPTURE(damage.value_or("removed"));
      try_it(copy);
    }
  }
  CHECK(refused > static_cast<int>(most_flips() / 3));
  CHECK(trained > static_cast<int>(most_flips() / 3));
}

}  // namespace checkpoint_damage_test
