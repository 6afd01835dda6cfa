#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace toy {

/// An entry of an archive. Fields other than its name and data replace the true values in the archive.
struct ZipEntry {
  std::string name, data;
  std::optional<std::uint32_t> size = {}, compressed_size = {}, checksum = {}, offset = {};
  std::uint16_t method = 0, flags = 0;
};

/// The checksum of zip archives, bit by bit.
inline std::uint32_t crc32(const std::string& data) {
  std::uint32_t crc = ~0u;
  for (const char byte : data) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc % 2 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

/// A zip archive with stored entries, as its specification (APPNOTE 4.3) says.
inline std::string zip_bytes(const std::vector<ZipEntry>& entries) {
  std::string file, directory;
  const auto number = [](std::uint32_t value, int size) {
    std::string bytes;
    for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i));
    return bytes;
  };
  const auto count = [](const std::string& text) { return static_cast<std::uint32_t>(text.size()); };
  for (const auto& entry : entries) {
    const auto info = number(20, 2) + number(entry.flags, 2) + number(entry.method, 2) + number(0x210000, 4) +
                      number(entry.checksum.value_or(crc32(entry.data)), 4) +
                      number(entry.compressed_size.value_or(count(entry.data)), 4) +
                      number(entry.size.value_or(count(entry.data)), 4) + number(count(entry.name), 2) +
                      number(0, 2);
    directory += "PK\1\2" + number(20, 2) + info + number(0, 2) + number(0, 4) + number(0, 4) +
                 number(entry.offset.value_or(count(file)), 4) + entry.name;
    if (!entry.offset) file += "PK\3\4" + info + entry.name + entry.data;
  }
  const auto entry_count = static_cast<std::uint32_t>(entries.size());
  return file + directory + "PK\5\6" + number(0, 4) + number(entry_count, 2) + number(entry_count, 2) +
         number(count(directory), 4) + number(count(file), 4) + number(0, 2);
}

}  // namespace toy
