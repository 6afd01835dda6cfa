#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <istream>
#include <mutex>
#include <string>

#include "etude/integrations/wandb/records.hpp"
#include "etude/io/background.hpp"

namespace etude::inline v0::detail {

/// A text of `length` random letters and digits.
std::string wandb_random(std::size_t length);

/// The digest of the rest of `bytes`, by one of OpenSSL's algorithms. Throws Error if it isn't available.
std::string wandb_digest(std::istream& bytes, const char* algorithm);

/// A file's MD5 in base64, as Weights & Biases writes it. Throws Error if the file can't be read.
std::string wandb_file_digest(const std::filesystem::path& file);

/// The digest of a manifest: the hexadecimal MD5 of the paths and digests of `files`, sorted by path.
std::string wandb_manifest_digest(const std::vector<WandbFile>& files);

/// A valid artifact name: no slashes, and at most 128 characters.
std::string wandb_artifact_name(std::string name);

/// The aliases that Hugging Face gives a checkpoint, according to its trainer_state.json.
std::vector<std::string> wandb_checkpoint_aliases(const std::filesystem::path& checkpoint);

/// Makes artifacts of folders in a separate thread, which reads their files for the digests. Since `wandb
/// sync` removes each uploaded file, artifacts are copies, made of hard links if possible.
class WandbArtifacts {
 public:
  /// The thread calls `write` with each artifact's message, or `report` with the error.
  struct Outcome {
    std::function<void(const std::string& message)> write, report;
  };

  /// Artifacts are made in `folder`, and each gets the run fields of `like`.
  WandbArtifacts(std::filesystem::path folder, WandbArtifact like, Outcome outcome);

  /// A new folder for one artifact's files. Throws Error if it can't be created.
  std::filesystem::path make_folder();

  /// A new folder with a copy of everything in `source`. Throws Error if it can't be created.
  std::filesystem::path copy_of(const std::filesystem::path& source);

  /// Makes an artifact of a folder made by this object. If `aliases` is empty, it gets a checkpoint's
  /// aliases; "latest" is always added.
  void log(const std::filesystem::path& folder, std::string name, std::vector<std::string> aliases,
           const nlohmann::ordered_json& metadata);

  /// Waits until all artifacts are made.
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
  BackgroundJob background_;  // last: it uses everything above
};

}  // namespace etude::inline v0::detail
