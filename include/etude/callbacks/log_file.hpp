#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

/// For callbacks that write files of text: where these are, and CSV.
namespace etude::detail {

/// Where a logger's file is: `path`, from `args.output_dir` on unless it is absolute. Throws ArgumentError
/// for an empty one.
std::filesystem::path log_path(const TrainingArguments& args, const std::string& path);

/// Whether a training begins here that isn't resumed.
inline bool begins_anew(const TrainerState& state) {
  return state.global_step == 0 && state.log_history.empty();
}

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
