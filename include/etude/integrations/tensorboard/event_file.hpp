#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "etude/integrations/shared/append_file.hpp"

/// TensorBoard's event files: records with checksums, one file for each writer.
namespace etude::inline v0::detail::tensorboard {

/// The CRC-32C of `bytes`, masked as in TensorBoard's records.
std::uint32_t masked_crc(std::string_view bytes);

/// The size of a record's header.
inline constexpr std::size_t header_size = 12;

/// Turns `header_size` bytes followed by an event into a record.
void seal(std::string& record);

/// The event files of a folder in the order in which they are read; empty if it can't be read.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder);

/// The records of `step` or later that were written by `time` and that no later file hides with a SessionLog
/// START. A file is read up to the first incomplete record.
std::vector<std::string> records_from(const std::vector<std::filesystem::path>& files, std::int64_t step,
                                      double time);

/// Creates a folder, and a new event file in it that sorts after the existing ones. Throws ArgumentError on
/// failure.
AppendFile new_event_file(const std::filesystem::path& folder, std::filesystem::path& path);

}  // namespace etude::inline v0::detail::tensorboard
