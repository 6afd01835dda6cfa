#include "run_folder.hpp"

#include <fmt/format.h>

#include <string_view>
#include <system_error>

#include "etude/base/error.hpp"
#include "etude/checkpoint/model_files.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/io/mapped_file.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/json_parser.hpp"
#include "output.hpp"

namespace tool {
namespace fs = std::filesystem;

namespace {

Kind kind_of_folder(const fs::path& path) {
  std::error_code error;
  const auto has = [&](std::string_view name) { return fs::exists(path / name, error); };
  const bool has_model = has(etude::model_file) || has(etude::model_index_file);
  if (has(etude::manifest_file)) return Kind::checkpoint;
  if (!etude::checkpoint_folders(path).empty()) return Kind::run;
  if (has("trainer_state.json")) return has_model ? Kind::checkpoint : Kind::run;
  if (has_model) return Kind::model;
  throw etude::CheckpointError(
      fmt::format("{} is neither a checkpoint nor the folder of a run nor that of a model: it has no {}, no "
                  "trainer_state.json, no checkpoint-STEP and no {}",
                  path.string(), etude::manifest_file, etude::model_file));
}

}  // namespace

Kind kind_of(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status))
    throw etude::CheckpointError(
        fmt::format("{} can't be read: {}", path.string(),
                    error ? error.message() : std::string("No such file or directory")));
  if (fs::is_directory(status)) return kind_of_folder(path);
  if (path.extension() == ".safetensors") return Kind::safetensors;
  const etude::MappedFile file(path);
  // True for a zip archive, and for a bare pickle as PyTorch wrote before 1.6.
  if (file.text().starts_with("PK\3\4") || file.text().starts_with('\x80')) return Kind::torch;
  if (const auto name = path.extension(); name == ".pt" || name == ".pth" || name == ".bin")
    return Kind::torch;
  throw etude::CheckpointError(
      fmt::format("{} can't be read: it must be a .safetensors file, a .pt file of torch.save, or the folder "
                  "of a checkpoint, a run or a model",
                  path.string()));
}

fs::path newest_checkpoint(const fs::path& run) {
  bool has_foreign = false;
  const auto pass_over = [&](const fs::path& folder, std::string_view why) {
    std::error_code error;
    if (fs::exists(folder / etude::manifest_file, error))
      complain(fmt::format("skipping {}: {}", folder.string(), why));
    else
      has_foreign = true;
  };
  const auto own = etude::CheckpointStore(run).candidates(pass_over);
  if (!own.empty()) return own.front();
  if (const auto last = has_foreign ? etude::get_last_checkpoint(run) : std::nullopt)
    if (std::error_code error; fs::exists(*last / "trainer_state.json", error)) return *last;
  throw etude::CheckpointError(fmt::format("{} has no checkpoint that can be read", run.string()));
}

std::optional<nlohmann::ordered_json> read_json_file(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  const etude::MappedFile file(path);
  try {
    return etude::parse_json(file.text());
  } catch (const etude::ArgumentError& fault) {
    throw etude::CheckpointError(fmt::format("{}: {}", path.string(), fault.what()));
  }
}

std::optional<etude::TrainingArguments> arguments_of(const std::optional<nlohmann::ordered_json>& saved) {
  if (!saved) return std::nullopt;
  try {
    return etude::normalized(etude::from_json_value<etude::TrainingArguments>(*saved));
  } catch (const etude::ArgumentError&) {  // written by an incompatible version
    return std::nullopt;
  }
}

std::string best_metric_name(const std::optional<etude::TrainingArguments>& arguments) {
  if (!arguments || !arguments->metric_for_best_model) return {};
  const auto& name = *arguments->metric_for_best_model;
  return name.starts_with("eval_") ? name : "eval_" + name;
}

}  // namespace tool
