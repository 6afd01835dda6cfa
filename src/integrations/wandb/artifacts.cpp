#include "etude/integrations/wandb/artifacts.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "etude/base/base64.hpp"
#include "etude/base/error.hpp"
#include "etude/base/read_file.hpp"
#include "etude/integrations/shared/text.hpp"
#include "etude/io/file_system.hpp"
#include "etude/reflect/json_parser.hpp"

namespace etude::inline v0::detail {

std::string wandb_digest(std::istream& bytes, const char* algorithm) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const auto* md = EVP_get_digestbyname(algorithm);
  bool is_well = context && md != nullptr && EVP_DigestInit_ex(context.get(), md, nullptr) == 1;
  std::vector<char> piece(std::size_t{1} << 20);
  while (is_well && (bytes.read(piece.data(), std::ssize(piece)), bytes.gcount() > 0))
    is_well = EVP_DigestUpdate(context.get(), piece.data(), static_cast<std::size_t>(bytes.gcount())) == 1;
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (!is_well || EVP_DigestFinal_ex(context.get(), digest.data(), &size) != 1)
    throw Error(fmt::format("OpenSSL has no {} here, which Weights & Biases' artifacts need", algorithm));
  return {digest.begin(), digest.begin() + size};
}

std::string wandb_random(std::size_t length) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device device;
  std::uniform_int_distribution<std::size_t> any(0, letters.size() - 1);
  std::string text;
  while (text.size() < length) text += letters[any(device)];
  return text;
}

std::string wandb_file_digest(const std::filesystem::path& file) {
  std::ifstream bytes(file, std::ios::binary);
  const auto digest = bytes ? wandb_digest(bytes, "MD5") : "";
  if (digest.empty() || bytes.bad()) throw Error(fmt::format("{} can't be read", file.string()));
  return base64(digest);
}

std::string wandb_manifest_digest(const std::vector<WandbFile>& files) {
  std::stringstream manifest;
  manifest << "wandb-artifact-manifest-v1\n";
  for (const auto& file : files) manifest << file.path << ':' << file.digest << '\n';
  return hexadecimal(wandb_digest(manifest, "MD5"));
}

std::string wandb_artifact_name(std::string name) {
  for (auto& letter : name)
    if (letter == '/' || letter == ':' || letter == '\\') letter = '-';
  return name.substr(0, 128);
}

std::vector<std::string> wandb_checkpoint_aliases(const std::filesystem::path& checkpoint) try {
  const auto state = parse_json(detail::read_file(checkpoint / "trainer_state.json").value_or(""));
  auto epoch = fmt::format("{:.2f}", state.at("epoch").get<double>());
  if (epoch.ends_with('0')) epoch.pop_back();  // as Python formats it: 1.0, 0.5, 0.33
  return {"epoch_" + epoch,
          fmt::format("checkpoint_global_step_{}", state.at("global_step").get<std::int64_t>())};
} catch (const std::exception&) {
  return {};
}

WandbArtifacts::WandbArtifacts(std::filesystem::path folder, WandbArtifact like, Outcome outcome)
    : folder_(std::move(folder)), like_(std::move(like)), outcome_(std::move(outcome)) {}

std::filesystem::path WandbArtifacts::make_folder() {
  const auto folder = folder_ / std::to_string(count_++);
  default_file_system().create_directories(folder);
  return folder;
}

std::filesystem::path WandbArtifacts::copy_of(const std::filesystem::path& source) try {
  auto folder = make_folder();
  constexpr auto follow = std::filesystem::directory_options::follow_directory_symlink;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source, follow)) {
    const auto target = folder / entry.path().lexically_relative(source);
    std::error_code error;
    if (entry.is_directory()) {
      std::filesystem::create_directories(target);
    } else if (entry.is_regular_file()) {
      // A hard link to a symbolic link is itself a symbolic link, and would be dangling here.
      std::filesystem::create_hard_link(std::filesystem::canonical(entry.path()), target, error);
      if (error) std::filesystem::copy_file(entry.path(), target);
    }
  }
  return folder;
} catch (const std::filesystem::filesystem_error& error) {
  throw Error(fmt::format("{} can't be copied: {}", source.string(), error.code().message()));
}

void WandbArtifacts::log(const std::filesystem::path& folder, std::string name,
                         std::vector<std::string> aliases, const nlohmann::ordered_json& metadata) {
  Job job{folder, like_};
  job.artifact.name = wandb_artifact_name(std::move(name));
  job.artifact.aliases = std::move(aliases);
  job.artifact.metadata = wandb_json(metadata);
  job.artifact.client_id = wandb_random(128);
  job.artifact.sequence_client_id = wandb_random(128);
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (std::exchange(working_, true)) return;
  }
  background_.start([this] { work(); });
}

void WandbArtifacts::work() {
  while (true) {
    Job job;
    {
      const std::lock_guard lock(mutex_);
      working_ = !jobs_.empty();
      if (!working_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    const auto name = job.artifact.name;
    try {
      make(std::move(job));
    } catch (const std::exception& error) {
      outcome_.report(fmt::format("the artifact {} wasn't logged: {}", name, error.what()));
    }
  }
}

void WandbArtifacts::make(Job job) {
  auto& artifact = job.artifact;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(job.folder)) {
    if (!entry.is_regular_file()) continue;
    artifact.files.push_back({.path = entry.path().lexically_relative(job.folder).generic_string(),
                              .local_path = entry.path().string(),
                              .digest = wandb_file_digest(entry.path()),
                              .size = static_cast<std::int64_t>(entry.file_size())});
  }
  std::ranges::sort(artifact.files, {}, &WandbFile::path);
  artifact.digest = wandb_manifest_digest(artifact.files);
  if (artifact.aliases.empty()) artifact.aliases = wandb_checkpoint_aliases(job.folder);
  artifact.aliases.emplace_back("latest");
  outcome_.write(wandb_artifact_message(artifact));
}

}  // namespace etude::inline v0::detail
