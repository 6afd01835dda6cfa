#include "etude/integrations/wandb/artifacts.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "integrations/wandb/run_log.hpp"

namespace integrations_wandb_artifacts_test {

using namespace etude::detail;

struct Seen {
  std::mutex mutex;
  std::vector<toy::WandbArtifactSeen> artifacts;
  std::vector<std::string> faults;
};

WandbArtifacts::Outcome outcome(Seen& seen) {
  return {.write =
              [&](const std::string& message) {
                const std::lock_guard lock(seen.mutex);
                seen.artifacts.push_back(toy::wandb_artifact(protozero::pbf_reader(message)));
              },
          .report =
              [&](const std::string& fault) {
                const std::lock_guard lock(seen.mutex);
                seen.faults.push_back(fault);
              }};
}

TEST_CASE("digests are those of wandb's own Artifact") {
  const toy::Folder folder;
  toy::write_text(folder / "a.txt", "abc");
  toy::write_text(folder / "c.txt", "");
  CHECK(wandb_file_digest(folder / "a.txt") == "kAFQmDzST7DWlj99KOF/cg==");
  CHECK(wandb_file_digest(folder / "c.txt") == "1B2M2Y8AsgTpgAmY7PhCfg==");
  // The digest that wandb 0.31 computes for Artifact("m", "model") with these two files.
  std::vector<WandbFile> files(2);
  files[0] = {.path = "a.txt", .digest = "kAFQmDzST7DWlj99KOF/cg=="};
  files[1] = {.path = "b/c.txt", .digest = "1B2M2Y8AsgTpgAmY7PhCfg=="};
  CHECK(wandb_manifest_digest(files) == "3de0f13e46f26f0e88dd7bb062c424c9");
  CHECK_THROWS_AS(wandb_file_digest(folder / "b.txt"), etude::Error);
}

TEST_CASE("the aliases of a checkpoint are spelled as Python spells the rounded epoch") {
  const toy::Folder folder;
  const auto alias = [&](const std::string& epoch) {
    toy::write_text(folder / "trainer_state.json",
                    R"({"epoch": )" + epoch + R"(, "global_step": 7, "log_history": [{"loss": NaN}]})");
    return wandb_checkpoint_aliases(std::string(folder)).at(0);
  };
  CHECK(alias("1.0") == "epoch_1.0");
  CHECK(alias("10.0") == "epoch_10.0");
  CHECK(alias("0.5") == "epoch_0.5");
  CHECK(alias("0.3333333") == "epoch_0.33");
  CHECK(alias("2.999") == "epoch_3.0");
  CHECK(wandb_checkpoint_aliases(std::string(folder)).at(1) == "checkpoint_global_step_7");
  toy::write_text(folder / "trainer_state.json", "{");
  CHECK(wandb_checkpoint_aliases(std::string(folder)).empty());
}

TEST_CASE("an artifact refers to copies, which outlive the checkpoint and can be removed") {
  const toy::Folder folder;
  Seen seen;
  std::filesystem::create_directories(folder / "checkpoint/tokenizer");
  toy::write_text(folder / "checkpoint/model.safetensors", "weights");
  toy::write_text(folder / "checkpoint/tokenizer/vocab.json", "words");
  {
    WandbArtifacts artifacts(folder / "staged", {}, outcome(seen));
    for (int i = 0; i < 3; ++i)
      artifacts.log(artifacts.copy_of(folder / "checkpoint"), "model-a/b:c", {"mine"}, {{"loss", 0.5}});
    std::filesystem::remove(folder / "checkpoint/tokenizer/vocab.json");  // by save_total_limit, say
    artifacts.wait();
  }
  REQUIRE(seen.artifacts.size() == 3);
  CHECK(seen.faults.empty());
  for (const auto& artifact : seen.artifacts) {
    CHECK(artifact.name == "model-a-b-c");
    CHECK((artifact.aliases == std::vector<std::string>{"mine", "latest"}));
    CHECK(artifact.metadata == R"({"loss":0.5})");
    REQUIRE(artifact.files.size() == 2);
    CHECK(toy::read_text(artifact.files.at("tokenizer/vocab.json")) == "words");
    std::filesystem::remove(artifact.files.at("model.safetensors"));  // as `wandb sync` does
  }
  CHECK(toy::read_text(folder / "checkpoint/model.safetensors") == "weights");
}

TEST_CASE("files and folders that are symbolic links are copied as their targets") {
  const toy::Folder folder;
  Seen seen;
  std::filesystem::create_directories(folder / "elsewhere/deep");
  std::filesystem::create_directories(folder / "checkpoint");
  toy::write_text(folder / "elsewhere/deep/vocab.json", "words");
  std::filesystem::create_symlink("../elsewhere/deep/vocab.json", folder / "checkpoint/vocab.json");
  std::filesystem::create_directory_symlink("../elsewhere", folder / "checkpoint/more");
  WandbArtifacts artifacts(folder / "staged", {}, outcome(seen));
  artifacts.log(artifacts.copy_of(folder / "checkpoint"), "model-x", {"mine"}, {});
  artifacts.wait();
  CHECK(seen.faults.empty());
  REQUIRE(seen.artifacts.size() == 1);
  REQUIRE(seen.artifacts[0].files.size() == 2);
  for (const auto* name : {"vocab.json", "more/deep/vocab.json"}) {
    const auto copy = seen.artifacts[0].files.at(name);
    CHECK(toy::read_text(copy) == "words");
    std::filesystem::remove(copy);  // as `wandb sync` does
  }
  CHECK(toy::read_text(folder / "checkpoint/vocab.json") == "words");
}

TEST_CASE("an unreadable folder is reported, and the next artifact is created") {
  const toy::Folder folder;
  Seen seen;
  WandbArtifacts artifacts(folder / "staged", {}, outcome(seen));
  CHECK_THROWS_AS(artifacts.copy_of(folder / "nothing"), etude::Error);
  artifacts.log(folder / "nothing", "model-x", {}, {});
  const auto empty = artifacts.make_folder();
  toy::write_text(empty / "a.txt", "abc");
  artifacts.log(empty, "model-y", {}, {});
  artifacts.wait();
  REQUIRE(seen.faults.size() == 1);
  CHECK(seen.faults[0].starts_with("the artifact model-x wasn't logged"));
  REQUIRE(seen.artifacts.size() == 1);
  CHECK((seen.artifacts[0].aliases == std::vector<std::string>{"latest"}));
}

}  // namespace integrations_wandb_artifacts_test
