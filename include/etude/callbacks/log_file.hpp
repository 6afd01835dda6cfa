#pragma once

#include <filesystem>
#include <string>

#include "etude/base/error.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0::detail {

/// The path of a logger's file: `path`, relative to `args.output_dir` unless it is absolute. Throws
/// ArgumentError if it is empty.
inline std::filesystem::path log_path(const TrainingArguments& args, const std::string& path) {
  if (path.empty()) throw ArgumentError("path is '': must be the name of a file");
  return std::filesystem::path(args.output_dir) / path;
}

/// Whether a training that isn't resumed begins here.
inline bool starts_from_scratch(const TrainerState& state) {
  return state.global_step == 0 && state.log_history.empty();
}

}  // namespace etude::inline v0::detail
