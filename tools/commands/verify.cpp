#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "commands.hpp"
#include "etude/base/error.hpp"
#include "etude/checkpoint/model_files.hpp"
#include "etude/checkpoint/resume.hpp"
#include "etude/checkpoint/resume_point.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/formats/torch_file.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/io/folder.hpp"
#include "etude/reflect/json_parser.hpp"
#include "output.hpp"
#include "run_folder.hpp"

namespace tool {
namespace {

namespace fs = std::filesystem;

struct Fault {
  std::string file;  ///< its path in the folder; empty for the folder itself
  std::string text;
};

struct Verdict {
  std::string path;
  std::string_view kind;
  std::size_t files = 0;
  bool has_checksums = false;
  std::vector<Fault> faults = {};
};

class FolderVerifier {
 public:
  FolderVerifier(const fs::path& folder, bool allow_extra) : folder_(folder), allow_extra_(allow_extra) {}

  Verdict verify() {
    verdict_.path = folder_.string();
    verdict_.kind = "checkpoint";
    std::optional<etude::FolderReader> reader;
    if (!attempt(std::string(etude::manifest_file),
                 [&] { reader.emplace(folder_, /*need_manifest=*/false); }))
      return std::move(verdict_);
    if (reader->manifest()) {
      verdict_.has_checksums = true;
      for (const auto& [name, file] : reader->manifest()->files) names_.insert(name);
      if (!allow_extra_) find_extra();
    } else {
      names_ = names_in_folder();
      std::erase_if(names_, [](const auto& name) { return name.find('/') != name.npos; });
      // Only Etude writes this file.
      if (names_.contains("training_progress.json"))
        add(std::string(etude::manifest_file),
            fmt::format("{} is missing", (folder_ / etude::manifest_file).string()));
    }
    verdict_.files = names_.size();
    for (const auto& name : names_) attempt(name, [&] { verify_file(*reader, name); });
    if (verdict_.faults.empty()) attempt("", [&] { verify_contents(*reader); });
    return std::move(verdict_);
  }

 private:
  void add(std::string file, std::string text) {
    verdict_.faults.push_back({std::move(file), std::move(text)});
  }

  /// Returns whether `check` found no fault.
  bool attempt(const std::string& file, const std::function<void()>& check) {
    try {
      check();
      return true;
    } catch (const std::exception& error) {
      add(file, error.what());
      return false;
    }
  }

  std::set<std::string> names_in_folder() {
    std::set<std::string> names;
    std::error_code error;
    for (fs::recursive_directory_iterator entry(folder_, error), end; !error && entry != end;
         entry.increment(error))
      if (std::error_code gone; !fs::is_directory(entry->symlink_status(gone)))
        names.insert(entry->path().lexically_relative(folder_).generic_string());
    if (error) add("", fmt::format("{} can't be read: {}", folder_.string(), error.message()));
    names.erase(std::string(etude::manifest_file));
    return names;
  }

  void find_extra() {
    for (const auto& name : names_in_folder())
      if (!names_.contains(name))
        add(name,
            fmt::format("{} is not in the manifest", (folder_ / etude::detail::printable(name)).string()));
  }

  static void verify_file(etude::FolderReader& reader, const std::string& name) {
    const auto file = reader.map(name);
    try {
      if (name.ends_with(".safetensors")) {
        etude::load_safetensors(file);
      } else if (name.ends_with(".json")) {
        etude::parse_json(file->text());
      }
    } catch (const etude::ArgumentError& error) {
      throw etude::CheckpointError(fmt::format("{}: {}", file->path().string(), error.what()));
    }
  }

  static void verify_contents(etude::FolderReader& reader) {
    if (reader.has("trainer_state.json"))
      etude::read_resume_point(reader);
    else
      etude::read_model_files(reader);
  }

  fs::path folder_;
  bool allow_extra_;
  std::set<std::string> names_;
  Verdict verdict_;
};

Verdict verify_one_file(const fs::path& path, Kind kind) {
  Verdict verdict{.path = path.string(), .kind = kind == Kind::torch ? "torch" : "safetensors", .files = 1};
  try {
    if (kind == Kind::torch) {
      const etude::TorchArchive archive(path);
      etude::detail::load_described(archive, archive.all_tensors());
    } else {
      etude::load_safetensors(path);
    }
  } catch (const std::exception& error) {
    verdict.faults.push_back({path.filename().string(), error.what()});
  }
  return verdict;
}

/// Verifies the checkpoints of a run, or a single checkpoint or file.
std::vector<Verdict> verify_path(const fs::path& path, bool allow_extra) {
  const auto kind = kind_of(path);
  if (kind == Kind::safetensors || kind == Kind::torch) return {verify_one_file(path, kind)};
  if (kind != Kind::run) {
    auto verdict = FolderVerifier(path, allow_extra).verify();
    if (kind == Kind::model) verdict.kind = "model";
    return {std::move(verdict)};
  }
  std::vector<Verdict> verdicts;
  for (const auto& folder : etude::checkpoint_folders(path))
    verdicts.push_back(FolderVerifier(folder, allow_extra).verify());
  if (std::error_code error; fs::exists(path / "trainer_state.json", error)) {
    Verdict verdict{.path = (path / "trainer_state.json").string(), .kind = "state", .files = 1};
    try {
      etude::load_trainer_state(path);
    } catch (const std::exception& fault) {
      verdict.faults.push_back({"trainer_state.json", fault.what()});
    }
    verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

void print_verdict(const Verdict& verdict) {
  if (verdict.faults.empty()) {
    print(fmt::format("{}: ok, {}{}\n", plain(verdict.path), counted(verdict.files, "file"),
                      verdict.has_checksums          ? " with the checksums of the manifest"
                      : verdict.kind == "checkpoint" ? ", without a manifest: checksums are unknown"
                                                     : ""));
    return;
  }
  auto text = fmt::format("{}: {}\n", plain(verdict.path), counted(verdict.faults.size(), "fault"));
  for (const auto& fault : verdict.faults) text += fmt::format("  {}\n", fault.text);
  print(text);
}

Json verdict_json(const Verdict& verdict) {
  auto faults = Json::array();
  for (const auto& [file, text] : verdict.faults) faults.push_back({{"file", file}, {"fault", text}});
  return {{"path", verdict.path},
          {"kind", verdict.kind},
          {"ok", verdict.faults.empty()},
          {"files", verdict.files},
          {"has_checksums", verdict.has_checksums},
          {"faults", std::move(faults)}};
}

}  // namespace

int verify(const VerifyOptions& options) {
  int code = success;
  auto list = Json::array();
  for (const auto& given : options.paths) try {
      for (const auto& verdict : verify_path(without_slash(given), options.allow_extra)) {
        if (!verdict.faults.empty()) code = std::max<int>(code, faults_found);
        if (options.json)
          list.push_back(verdict_json(verdict));
        else
          print_verdict(verdict);
      }
    } catch (const etude::CheckpointError& error) {
      complain(error.what());
      code = unreadable;
    }
  if (options.json) print_json({{"ok", code == success}, {"verified", std::move(list)}});
  return code;
}

}  // namespace tool
