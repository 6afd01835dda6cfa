#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

/// Paths and CSV for callbacks that write text files.
namespace etude::detail {

/// The path of a logger's file: `path`, relative to `args.output_dir` unless it is absolute. Throws
/// ArgumentError if it is empty.
std::filesystem::path log_path(const TrainingArguments& args, const std::string& path);

/// Whether a training that isn't resumed begins here.
inline bool begins_anew(const TrainerState& state) {
  return state.global_step == 0 && state.log_history.empty();
}

/// A field of a CSV file, quoted if RFC 4180 requires it.
std::string csv_field(std::string_view text);

/// The shortest text that reads back as the same number.
std::string csv_number(double value);

/// The records of a CSV file, without line ends and without an incomplete last one.
std::vector<std::string> csv_records(std::string_view text);

/// The fields of a record, without their quotes.
std::vector<std::string> csv_fields(std::string_view record);

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/log_file.ipp"
#endif
