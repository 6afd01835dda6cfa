#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/io/checksum.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/io/mapped_file.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/version.hpp"

namespace etude::inline v0 {

/// This version of Etude, for example "0.1.0".
inline std::string version_text() {
  return fmt::format("{}.{}.{}", ETUDE_VERSION / 10000, ETUDE_VERSION / 100 % 100, ETUDE_VERSION % 100);
}

struct ManifestFile {
  ETUDE_STRUCT(ManifestFile, (std::uint64_t, size, "bytes"),
               (std::string, xxh3_128, "checksum, as xxhsum -H2 prints it"));

  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

/// Describes a checkpoint folder: its files, the run that wrote it, and when.
struct Manifest {
  using Files = std::map<std::string, ManifestFile>;
  static constexpr std::int64_t newest_format = 1;
  static constexpr std::int64_t most_serial = (std::int64_t{1} << 53) - 1;

  ETUDE_STRUCT(Manifest, (std::int64_t, format, "version of this file's format", newest_format),
               (std::string, etude, "Etude's version", version_text()),
               (std::string, libtorch, "LibTorch's version"), (std::string, run, "the run that wrote it"),
               (std::int64_t, serial,
                "number of the checkpoint in its output folder; the newest has the largest"),
               (std::int64_t, global_step, "update steps done"),
               (std::string, reason, "periodic, best, interrupted or exception"),
               (Files, files, "every file but this one, by its path in the folder"));

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

namespace detail {

// The manifest is JSON; its last member is the checksum of all bytes before that member's comma.
inline constexpr std::string_view checksum_begin = ",\n  \"checksum\": \"";
inline constexpr std::string_view checksum_end = "\"\n}\n";
inline constexpr std::size_t checksum_size = 32;

inline bool is_checksum(std::string_view text) {
  return text.size() == checksum_size && text.find_first_not_of("0123456789abcdef") == text.npos;
}

inline std::string checksum_of_text(std::string_view text) {
  return checksum(std::as_bytes(std::span(text)));
}

}  // namespace detail

/// The text of a manifest: JSON whose last member "checksum" is the XXH3-128 of all bytes before the comma
/// preceding it. Every format version ends this way. Throws CheckpointError for a name that isn't UTF-8.
std::string to_manifest_text(const Manifest& manifest);

/// Parses a manifest. Throws a CheckpointError that describes the problem.
Manifest from_manifest_text(std::string_view text);

/// Reads the manifest of a folder. Throws CheckpointError with its path and the problem.
Manifest read_manifest(const std::filesystem::path& folder);

}  // namespace etude::inline v0
