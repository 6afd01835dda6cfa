#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "etude/integrations/shared/append_file.hpp"

/// TensorBoard's event files: records with checksums, one file for each writer.
namespace etude::detail::tensorboard {

/// The CRC-32C of some bytes, masked as the records have it.
std::uint32_t masked_crc(std::string_view bytes);

/// What stands before the data of a record.
inline constexpr std::size_t header_size = 12;

/// Makes a record of an event that stands behind `header_size` bytes.
void seal(std::string& record);

/// The event files of a folder in the order in which they are read; none where it can't be read.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder);

/// The records with data of `step` or behind it that were written until `time`, and that no later file hides
/// by its SessionLog START. A file is read up to the first record that isn't whole.
std::vector<std::string> records_from(const std::vector<std::filesystem::path>& files, std::int64_t step,
                                      double time);

/// Makes a folder, and a new event file in it, which is read after those that are there. Throws ArgumentError
/// where it can't.
AppendFile new_event_file(const std::filesystem::path& folder, std::filesystem::path& path);

}  // namespace etude::detail::tensorboard

#ifndef ETUDE_COMPILED
#include "etude/integrations/tensorboard/impl/event_file.ipp"
#endif
