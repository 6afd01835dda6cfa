#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "etude/checkpoint/safetensors.hpp"
#include "etude/error.hpp"
#include "etude/loop/core.hpp"
#include "etude/reflect/json.hpp"

/// `output_dir/checkpoint-STEP`: weights, optimizer, scheduler, state and arguments, in files that Python's
/// tools can read.
namespace etude {

/// The step of a folder called "checkpoint-STEP".
inline std::optional<std::int64_t> checkpoint_step(const std::filesystem::path& folder) {
  const auto name = folder.filename().string();
  constexpr std::string_view prefix = "checkpoint-";
  std::int64_t step = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

/// The checkpoint that `resume` means. Throws `CheckpointError` if there is none.
inline std::filesystem::path find_checkpoint(const TrainOptions::Resume& resume,
                                             const std::filesystem::path& output_dir) {
  if (!resume.path.empty()) {
    if (!std::filesystem::exists(resume.path / "trainer_state.json"))
      throw CheckpointError(
          fmt::format("resume_from_checkpoint is {}: must be the folder of a checkpoint, with a "
                      "trainer_state.json",
                      resume.path.string()));
    return resume.path;
  }
  std::optional<std::int64_t> newest;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(output_dir, missing))
    if (const auto step = checkpoint_step(entry.path()); step && entry.is_directory())
      newest = std::max(newest.value_or(*step), *step);
  if (!newest)
    throw CheckpointError(fmt::format("resume_from_checkpoint is true, and output_dir ({}) has no checkpoint",
                                      output_dir.string()));
  return output_dir / fmt::format("checkpoint-{}", *newest);
}

namespace detail {

template <class T>
void write_json_file(const std::filesystem::path& file, const T& value) {
  std::ofstream out(file);
  out << to_json_text(value, KeyOrder::sorted);
  if (!out.flush()) throw CheckpointError(fmt::format("{} can't be written", file.string()));
}

template <class T>
T read_json_file(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw CheckpointError(fmt::format("{} can't be read", file.string()));
  try {
    return from_json_text<T>(std::string(std::istreambuf_iterator<char>(in), {}));
  } catch (const ArgumentError& error) {
    throw CheckpointError(fmt::format("{}: {}", file.string(), error.what()));
  }
}

}  // namespace detail

/// Writes `model.safetensors`, and what the processing class saves, into a folder.
inline void save_model(const std::filesystem::path& directory, const Model& model,
                       const ProcessingClass& processing_class) {
  std::filesystem::create_directories(directory);
  save_safetensors(directory / "model.safetensors", model.state_dict(), {{"format", "pt"}});
  if (processing_class) processing_class.save(directory);
}

/// Reads the weights of a checkpoint into `model`, in place. Throws `CheckpointError` if they don't fit.
inline void load_model(const std::filesystem::path& checkpoint, Model& model) {
  model.load_state_dict(load_safetensors(checkpoint / "model.safetensors").tensors);
}

/// The state that a checkpoint was written in. Keys that it doesn't know, of another version, are passed
/// over.
inline TrainerState load_trainer_state(const std::filesystem::path& checkpoint) {
  return detail::read_json_file<TrainerState>(checkpoint / "trainer_state.json");
}

inline void load_optimizer(const std::filesystem::path& checkpoint, Optimizer& optimizer,
                           LRScheduler& scheduler) {
  optimizer.load_state(load_safetensors(checkpoint / "optimizer.safetensors").tensors);
  scheduler.load_state(detail::read_json_file<SchedulerState>(checkpoint / "scheduler.json"));
}

/// Writes a checkpoint of where `core` is, beside its place first and then renamed into it, so that a folder
/// of its name is a whole one. Returns its path.
inline std::filesystem::path write_checkpoint(TrainerCore& core) {
  const std::filesystem::path output_dir = core.args.output_dir;
  const auto folder = [&](std::int64_t step) { return output_dir / fmt::format("checkpoint-{}", step); };
  const auto target = folder(core.state.global_step);
  const auto partial = output_dir / fmt::format(".checkpoint-{}.partial", core.state.global_step);
  try {
    std::filesystem::remove_all(partial);
    save_model(partial, core.model, core.options.processing_class);
    if (!core.args.save_only_model && core.optimizer) {
      save_safetensors(partial / "optimizer.safetensors", core.optimizer->state(), {});
      detail::write_json_file(partial / "scheduler.json", core.lr_scheduler->state());
    }
    if (const auto best = core.state.best_global_step)
      if (*best == core.state.global_step || std::filesystem::exists(folder(*best)))
        core.state.best_model_checkpoint = folder(*best).string();
    detail::write_json_file(partial / "training_args.json", core.options.args);
    detail::write_json_file(partial / "trainer_state.json", core.state);
    std::filesystem::remove_all(target);
    std::filesystem::rename(partial, target);
  } catch (const std::filesystem::filesystem_error& error) {
    throw CheckpointError(fmt::format("{} can't be written: {}", target.string(), error.code().message()));
  }
  return target;
}

}  // namespace etude
