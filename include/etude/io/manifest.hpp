#pragma once

#include <fmt/format.h>

#include <algorithm>
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

/// The content of a checkpoint folder, and which run wrote it when.
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
inline std::string to_manifest_text(const Manifest& manifest) {
  std::string text;
  try {
    text = to_json_text(manifest);
  } catch (const ArgumentError& error) {
    throw CheckpointError(fmt::format("{}: {}", manifest_file, error.what()));
  }
  text.resize(text.size() - std::string_view("\n}\n").size());
  const auto sum = detail::checksum_of_text(text);
  return text.append(detail::checksum_begin).append(sum).append(detail::checksum_end);
}

/// Parses a manifest. Throws CheckpointError that describes the problem.
inline Manifest from_manifest_text(std::string_view text) {
  const auto tail = detail::checksum_begin.size() + detail::checksum_size + detail::checksum_end.size();
  const auto body = text.substr(0, text.size() - std::min(tail, text.size()));
  const auto rest = text.substr(body.size());
  if (rest.size() != tail || !rest.starts_with(detail::checksum_begin) ||
      !rest.ends_with(detail::checksum_end))
    throw CheckpointError("it has no checksum at the end");
  const auto stated = rest.substr(detail::checksum_begin.size(), detail::checksum_size);
  if (const auto sum = detail::checksum_of_text(body); sum != stated)
    throw CheckpointError(fmt::format("it is damaged: its checksum is {}, but it states {}", sum, stated));
  Manifest manifest;
  try {
    manifest = from_json_text<Manifest>(text);
  } catch (const ArgumentError& error) {
    throw CheckpointError(error.what());
  }
  if (manifest.format < 1 || manifest.format > Manifest::newest_format)
    throw CheckpointError(fmt::format("format is {}: this version of Etude ({}) knows 1 to {}",
                                      manifest.format, version_text(), Manifest::newest_format));
  constexpr auto in_a_name = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
  if (manifest.run.size() > 64 || manifest.run.find_first_not_of(in_a_name) != std::string::npos)
    throw CheckpointError("run must be at most 64 letters, digits, '-' and '_'");
  if (manifest.serial < 0 || manifest.serial > Manifest::most_serial)
    throw CheckpointError(fmt::format("serial is {}: must be from 0 to 2^53 - 1", manifest.serial));
  if (manifest.global_step < 0 || manifest.global_step > detail::most_steps)
    throw CheckpointError(fmt::format("global_step is {}: must be from 0 to 1e15", manifest.global_step));
  for (const auto& [name, file] : manifest.files) {
    if (const auto fault = detail::fault_of_entry_name(name); !fault.empty())
      throw CheckpointError(
          fmt::format("files: '{}' can't be a file's name: {}", detail::printable(name), fault));
    if (!detail::is_checksum(file.xxh3_128))
      throw CheckpointError(
          fmt::format("files: '{}': xxh3_128 is '{}': must be 32 hexadecimal digits", name, file.xxh3_128));
  }
  return manifest;
}

/// Reads the manifest of a folder. Throws CheckpointError with its path and the problem.
inline Manifest read_manifest(const std::filesystem::path& folder) {
  const MappedFile file(folder / manifest_file);
  constexpr std::size_t largest = 64 << 20;
  if (file.bytes().size() > largest)
    throw CheckpointError(fmt::format("{}: it has {} bytes; at most {} are allowed", file.path().string(),
                                      file.bytes().size(), largest));
  try {
    return from_manifest_text(file.text());
  } catch (const CheckpointError& error) {
    throw CheckpointError(fmt::format("{}: {}", file.path().string(), error.what()));
  }
}

}  // namespace etude::inline v0
