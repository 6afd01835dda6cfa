#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

/// Files of lines that loggers write to.
namespace etude::detail {

/// Where a logger's file is: `path`, from `args.output_dir` on unless it is absolute. Throws ArgumentError
/// for an empty one.
std::filesystem::path log_path(const TrainingArguments& args, const std::string& path);

/// All of a file; nothing where there is none.
std::string read_log(const std::filesystem::path& path);

/// Puts `text` in the place of the file, at once. Throws ArgumentError where it can't be written.
void replace_log(const std::filesystem::path& path, std::string_view text);

/// Whether a training begins here that isn't resumed.
inline bool begins_anew(const TrainerState& state) {
  return state.global_step == 0 && state.log_history.empty();
}

/// The first lines of a text, each with its end; fewer where it has fewer.
std::string_view first_lines(std::string_view text, std::int64_t count);

/// Adds `text` at the end. That it can't is told, and no reason to end a training.
void append_to_log(const TrainingArguments& args, const std::filesystem::path& path, std::string_view text);

/// A field of a CSV file, in quotes where RFC 4180 wants them.
std::string csv_field(std::string_view text);

/// The shortest text that gives the same number when it is read.
std::string csv_number(double value);

/// The records of a CSV file, without the ends of their lines. One that isn't whole, at the end, is left
/// out.
std::vector<std::string> csv_records(std::string_view text);

/// The fields of a record, without their quotes.
std::vector<std::string> csv_fields(std::string_view record);

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/log_file.ipp"
#endif
