#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "commands.hpp"
#include "etude/base/error.hpp"
#include "etude/checkpoint/resume.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/checkpoint/training_progress.hpp"
#include "etude/io/folder.hpp"
#include "etude/io/manifest.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/optim/named_optimizer.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/three_way.hpp"
#include "etude/study/trial_text.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"
#include "output.hpp"
#include "run_folder.hpp"
#include "tensors.hpp"

namespace tool {
namespace {

namespace fs = std::filesystem;

struct FileInfo {
  std::string name;
  std::uint64_t size = 0;
  std::optional<TensorFile> tensors = {};
};

/// The folder of a checkpoint or a model.
struct FolderInfo {
  fs::path path;
  std::optional<etude::Manifest> manifest;
  std::optional<etude::TrainerState> state;
  std::optional<etude::TrainingProgress> progress;
  std::optional<Json> arguments, changed_arguments;
  std::vector<std::pair<std::string, Json>> optimizers;  // a name, and optimizer.json
  std::vector<FileInfo> files;
};

std::vector<FileInfo> files_of(const fs::path& folder, const std::optional<etude::Manifest>& manifest) {
  std::vector<FileInfo> files;
  if (manifest) {
    for (const auto& [name, file] : manifest->files) files.push_back({name, file.size});
  } else {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error))
      if (entry.is_regular_file(error))
        files.push_back({entry.path().filename().string(), entry.file_size(error)});
    std::ranges::sort(files, {}, &FileInfo::name);
  }
  for (auto& file : files)
    if (file.name.ends_with(".safetensors")) file.tensors = safetensors_info(folder / file.name);
  return files;
}

FolderInfo read_folder(const fs::path& path) {
  etude::FolderReader reader(path, /*need_manifest=*/false);
  FolderInfo info{.path = path,
                  .manifest = reader.manifest(),
                  .state = {},
                  .progress = {},
                  .arguments = read_json_file(path / "training_args.json"),
                  .changed_arguments = {},
                  .optimizers = {},
                  .files = files_of(path, reader.manifest())};
  if (reader.has("trainer_state.json")) info.state = etude::load_trainer_state(path);
  info.progress = etude::detail::read_progress(reader);
  if (info.arguments && info.arguments->is_object())
    info.changed_arguments =
        etude::changed(etude::to_json_value(etude::TrainingArguments{}), *info.arguments);
  auto names = info.progress ? info.progress->optimizers : std::vector<std::string>();
  if (names.empty()) names.emplace_back();
  for (const auto& name : names)
    if (const auto file = etude::optimizer_file("optimizer.json", name); reader.has(file))
      info.optimizers.emplace_back(name, *read_json_file(path / file));
  return info;
}

/// The current options of an optimizer's first group.
Json options_of(const Json& optimizer) {
  auto options = Json::object();
  for (const auto* list : {"given", "changed"})
    if (const auto groups = optimizer.find(list);
        groups != optimizer.end() && groups->is_array() && !groups->empty() && groups->front().is_object())
      options.update(groups->front());
  return options;
}

std::string type_of(const Json& optimizer) {
  const auto type = optimizer.find("type");
  return type != optimizer.end() && type->is_string() ? type->get<std::string>() : "unknown";
}

/// The name of the metric that chose the best model; empty if unknown.
std::string name_of_best(const FolderInfo& info) {
  const auto arguments = arguments_of(info.arguments);
  return arguments ? etude::best_metric_name(*arguments) : "";
}

/// Describes when a checkpoint was written.
std::string_view moment_of(const etude::LoopState& loop) {
  switch (loop.stage) {
    case etude::TrainingStage::starting:
      return "before the first step";
    case etude::TrainingStage::epochs:
      break;
    case etude::TrainingStage::finishing:
    case etude::TrainingStage::finished:
    case etude::TrainingStage::done:
      return "after the last step";
  }
  switch (loop.epoch) {
    case etude::EpochStage::between:
      return "between two epochs";
    case etude::EpochStage::begun:
      return "before the first step of an epoch";
    case etude::EpochStage::steps:
    case etude::EpochStage::step_end:
      return "after a step";
    case etude::EpochStage::epoch_end:
    case etude::EpochStage::over:
      break;
  }
  return "after an epoch";
}

/// Each callback's saved state, except TrainerControl, which Hugging Face's Trainer lists as a callback in
/// this file.
Json callbacks_of(const etude::TrainerState& state) {
  auto callbacks = Json::object();
  if (!state.stateful_callbacks.is_object()) return callbacks;
  for (const auto& [name, callback] : state.stateful_callbacks.items())
    if (name != "TrainerControl") callbacks[name] = callback;
  return callbacks;
}

Json folder_json(const FolderInfo& info, std::string_view kind, bool list_tensors) {
  Json json = {{"kind", kind}, {"path", info.path.string()}};
  if (info.manifest)
    json["manifest"] = {{"etude", info.manifest->etude},
                        {"libtorch", info.manifest->libtorch},
                        {"run", info.manifest->run},
                        {"serial", info.manifest->serial},
                        {"reason", info.manifest->reason}};
  else
    json["manifest"] = nullptr;
  if (const auto& state = info.state) {
    json["global_step"] = state->global_step;
    json["max_steps"] = state->max_steps;
    json["epoch"] = etude::to_json_value(state->epoch);
    json["num_train_epochs"] = state->num_train_epochs;
    json["best_metric"] = etude::to_json_value(state->best_metric);
    json["best_metric_name"] = name_of_best(info);
    json["best_global_step"] = etude::to_json_value(state->best_global_step);
    json["best_model_checkpoint"] = etude::to_json_value(state->best_model_checkpoint);
    json["callbacks"] = callbacks_of(*state);
  }
  if (info.progress) json["loop"] = etude::to_json_value(info.progress->loop);
  if (info.changed_arguments) json["arguments"] = *info.changed_arguments;
  auto optimizers = Json::array();
  for (const auto& [name, optimizer] : info.optimizers)
    optimizers.push_back({{"name", name}, {"type", type_of(optimizer)}, {"options", options_of(optimizer)}});
  json["optimizers"] = std::move(optimizers);
  auto files = Json::array();
  for (const auto& file : info.files) {
    Json entry = {{"name", file.name}, {"size", file.size}};
    if (file.tensors) entry["tensors"] = tensors_json(*file.tensors, list_tensors);
    files.push_back(std::move(entry));
  }
  json["files"] = std::move(files);
  return json;
}

std::string members_text(const Json& object) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : object.items())
    parts.push_back(fmt::format(
        "{} {}", plain(name),
        value.is_number_float() ? etude::detail::number_text(value.get<double>()) : value_text(value, 40)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string state_lines(const FolderInfo& info) {
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](std::string name, std::string text) {
    rows.push_back({std::move(name), std::move(text)});
  };
  if (const auto& state = info.state) {
    add("step", fmt::format("{} of {}, epoch {:.2f} of {}", state->global_step, state->max_steps,
                            state->epoch, state->num_train_epochs));
    if (info.progress) add("saved", std::string(moment_of(info.progress->loop)));
    if (info.manifest) add("saved because", plain(info.manifest->reason));
    if (state->best_metric) {
      const auto name = name_of_best(info);
      auto text = fmt::format("{}{}", name.empty() ? "" : plain(name) + " ",
                              etude::detail::number_text(*state->best_metric));
      if (state->best_global_step) text += fmt::format(" at step {}", *state->best_global_step);
      if (state->best_model_checkpoint) text += ", " + plain(*state->best_model_checkpoint);
      add("best", std::move(text));
    }
  }
  for (const auto& [name, optimizer] : info.optimizers)
    add(name.empty() ? "optimizer" : "optimizer " + plain(name),
        fmt::format("{}: {}", plain(type_of(optimizer)), members_text(options_of(optimizer))));
  if (info.state) {
    std::vector<std::string> names;
    const auto callbacks = callbacks_of(*info.state);
    for (const auto& [name, callback] : callbacks.items()) names.push_back(etude::detail::cut_name(name, 60));
    if (!names.empty()) add("callbacks", fmt::format("{}", fmt::join(names, ", ")));
  }
  return table(rows, "ll");
}

std::string file_lines(const FolderInfo& info) {
  std::vector<std::vector<std::string>> rows;
  std::uint64_t size = 0;
  for (const auto& file : info.files) {
    size += file.size;
    rows.push_back({etude::detail::cut_name(file.name, 60), bytes_text(file.size),
                    file.tensors ? fmt::format("{}, {}", counted(file.tensors->tensors.size(), "tensor"),
                                               counted(file.tensors->elements(), "element"))
                                 : ""});
  }
  return fmt::format("\n{}, {}\n", counted(info.files.size(), "file"), bytes_text(size)) + table(rows, "lrl");
}

void print_folder(const FolderInfo& info, std::string_view kind, bool list_tensors) {
  auto text = fmt::format("{}: {}", plain(info.path.string()), kind);
  if (info.manifest)
    text += fmt::format(" of run {}, by Etude {} with LibTorch {}", plain(info.manifest->run),
                        plain(info.manifest->etude), plain(info.manifest->libtorch));
  else if (info.state)
    text += " without a manifest";
  text += "\n" + state_lines(info);
  if (info.changed_arguments && !info.changed_arguments->empty()) {
    text += "\narguments that differ from the defaults\n";
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, value] : info.changed_arguments->items())
      rows.push_back({etude::detail::cut_name(name, 60), value_text(value)});
    text += table(rows, "ll");
  }
  text += file_lines(info);
  if (list_tensors)
    for (const auto& file : info.files)
      if (file.tensors)
        text += fmt::format("\n{}: {}\n", plain(file.name), totals_text(*file.tensors)) +
                tensor_table(*file.tensors);
  print(text);
}

struct CheckpointLine {
  fs::path path;
  std::optional<etude::Manifest> manifest;
  std::string fault;
};

std::vector<CheckpointLine> checkpoints_of(const fs::path& run) {
  std::vector<CheckpointLine> lines;
  for (const auto& path : etude::checkpoint_folders(run)) {
    CheckpointLine line{.path = path, .manifest = {}, .fault = {}};
    try {
      line.manifest = etude::FolderReader(path, /*need_manifest=*/false).manifest();
    } catch (const etude::CheckpointError& error) {
      line.fault = error.what();
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

void inspect_run(const fs::path& run, const InspectOptions& options) {
  const auto checkpoints = checkpoints_of(run);
  const auto info = read_folder(newest_checkpoint(run));
  if (options.json) {
    auto list = Json::array();
    for (const auto& [path, manifest, fault] : checkpoints)
      list.push_back({{"path", path.string()},
                      {"global_step", *etude::checkpoint_step(path)},
                      {"reason", manifest ? Json(manifest->reason) : Json()},
                      {"fault", fault.empty() ? Json() : Json(fault)}});
    print_json({{"kind", "run"},
                {"path", run.string()},
                {"checkpoints", std::move(list)},
                {"newest", folder_json(info, "checkpoint", options.tensors)}});
    return;
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [path, manifest, fault] : checkpoints)
    rows.push_back({plain(path.filename().string()), !fault.empty() ? "can't be read"
                                                     : manifest     ? plain(manifest->reason)
                                                                    : "no manifest"});
  print(fmt::format("{}: a run with {}\n{}\n", plain(run.string()), counted(checkpoints.size(), "checkpoint"),
                    table(rows, "ll")));
  print_folder(info, "the newest checkpoint", options.tensors);
}

void inspect_file(const fs::path& path, const TensorFile& file, std::string_view kind,
                  const InspectOptions& options) {
  const auto size = fs::file_size(path);
  if (options.json) {
    Json json = {{"kind", kind}, {"path", path.string()}, {"size", size}};
    json["tensors"] = tensors_json(file, options.tensors);
    if (kind == "safetensors") {
      auto metadata = file.metadata;
      std::erase_if(metadata, [&](const auto& entry) { return file.tied.contains(entry.first); });
      json["metadata"] = metadata;
    } else {
      json["skipped"] = file.skipped;
    }
    print_json(json);
    return;
  }
  auto text = fmt::format("{}: {}, {}\n", plain(path.string()), bytes_text(size), totals_text(file));
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> by_dtype;
  for (const auto& tensor : file.tensors) {
    auto& [count, bytes] = by_dtype[tensor.dtype];
    ++count;
    bytes += tensor.bytes;
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [dtype, sums] : by_dtype)
    rows.push_back({dtype, counted(sums.first, "tensor"), bytes_text(sums.second)});
  if (!file.tied.empty()) rows.push_back({"tied", counted(file.tied.size(), "further name"), ""});
  text += table(rows, "lrr");
  for (const auto& [name, value] : file.metadata)
    if (!file.tied.contains(name))
      text += fmt::format("  metadata {}: {}\n", plain(name), etude::detail::cut_text(value, 80));
  if (!file.skipped.empty())
    text += fmt::format("  not tensors: {}\n",
                        etude::detail::cut_text(fmt::format("{}", fmt::join(file.skipped, ", ")), 200));
  if (options.tensors) text += "\n" + tensor_table(file);
  print(text);
}

}  // namespace

int inspect(const InspectOptions& options) {
  const fs::path path = without_slash(options.path);
  const auto kind = kind_of(path);
  if (kind != Kind::torch && !options.key.empty())
    throw UsageError(fmt::format("--key is '{}': must be given with a .pt file only", options.key));
  switch (kind) {
    case Kind::checkpoint:
    case Kind::model: {
      const bool is_model = kind == Kind::model;
      const auto info = read_folder(path);
      if (options.json)
        print_json(folder_json(info, is_model ? "model" : "checkpoint", options.tensors));
      else
        print_folder(info, is_model ? "a model" : "a checkpoint", options.tensors);
      break;
    }
    case Kind::run:
      inspect_run(path, options);
      break;
    case Kind::safetensors:
      inspect_file(path, safetensors_info(path), "safetensors", options);
      break;
    case Kind::torch:
      inspect_file(path, torch_info(path, options.key), "torch", options);
      break;
  }
  return success;
}

}  // namespace tool
