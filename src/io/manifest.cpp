#include "etude/io/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>

namespace etude::inline v0 {

std::string to_manifest_text(const Manifest& manifest) {
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

Manifest from_manifest_text(std::string_view text) {
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

Manifest read_manifest(const std::filesystem::path& folder) {
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
