#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "etude/integrations/wandb/records.hpp"
#include "etude/io/background.hpp"

namespace etude::detail {

/// So many random letters and digits.
std::string wandb_random(std::size_t length);

/// The MD5 of a file as Weights & Biases writes it, in base64. Throws Error where it can't be read.
std::string wandb_file_digest(const std::filesystem::path& file);

/// The digest of a manifest: hexadecimal MD5 over the paths and digests of `files`, which are in the order
/// of their paths.
std::string wandb_manifest_digest(const std::vector<WandbFile>& files);

/// As an artifact's name may be: no slashes, and at most 128 characters.
std::string wandb_artifact_name(std::string name);

/// The aliases that Hugging Face gives a checkpoint, by what its trainer_state.json says.
std::vector<std::string> wandb_checkpoint_aliases(const std::filesystem::path& checkpoint);

/// Makes artifacts of folders, in a thread of its own: their files are read for their digests. `wandb sync`
/// removes each file when it was uploaded, so they are copies, made of hard links where that can be.
class WandbArtifacts {
 public:
  /// `write` is called with each artifact's message, or with what went wrong, in that thread.
  struct Outcome {
    std::function<void(const std::string& message)> write, tell;
  };

  /// Artifacts lie in `folder`, and each is `like` this one as to its run.
  WandbArtifacts(std::filesystem::path folder, WandbArtifact like, Outcome outcome);

  /// A new folder for the files of one artifact. Throws Error where it can't be made.
  std::filesystem::path make_folder();

  /// The same with all that is in `source`. Throws Error.
  std::filesystem::path copy_of(const std::filesystem::path& source);

  /// Makes an artifact of a folder of those. Without aliases it has those of a checkpoint; and always
  /// "latest".
  void log(const std::filesystem::path& folder, std::string name, std::vector<std::string> aliases,
           const nlohmann::ordered_json& metadata);

  /// Until all of them are there.
  void wait() { background_.wait(); }

 private:
  struct Job {
    std::filesystem::path folder;
    WandbArtifact artifact;
  };
  void work();
  void make(Job job);

  std::filesystem::path folder_;
  WandbArtifact like_;
  Outcome outcome_;
  std::size_t count_ = 0;
  std::mutex mutex_;
  std::deque<Job> jobs_;
  bool working_ = false;
  BackgroundJob background_;  // the last: it uses all of these
};

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/wandb/impl/artifacts.ipp"
#endif
