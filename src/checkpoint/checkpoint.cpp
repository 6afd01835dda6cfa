#include "etude/checkpoint/checkpoint.hpp"

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/version.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/checkpoint/model_files.hpp"
#include "etude/checkpoint/snapshot_buffers.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/io/folder.hpp"
#include "etude/io/manifest.hpp"

namespace etude::inline v0 {

void CheckpointContents::detach(SnapshotBuffers& buffers) {
  std::vector<StateDict*> lists{&model};
  for (auto& [file, list] : tensors) lists.push_back(&list);
  buffers.copy(lists);
}

namespace detail {

namespace {

/// The manifest of a checkpoint, or an empty manifest if there is none or it is damaged.
Manifest manifest_of(const std::optional<std::filesystem::path>& checkpoint) {
  try {
    if (checkpoint) return read_manifest(*checkpoint);
  } catch (const CheckpointError&) {  // then all files are written again
  }
  return {};
}

/// Writes large tensors in parts, and all others into one file, whose metadata gives the number of parts of
/// each large one.
void write_program_tensors(FolderWriter& writer, const StateDict& tensors,
                           const std::optional<std::filesystem::path>& before) {
  const auto manifest = manifest_of(before);
  StateDict small;
  std::map<std::string, std::string> parts;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.dim() == 0 || tensor.size(0) < 2 || tensor.nbytes() <= part_bytes) {
      small.emplace_back(name, tensor);
      continue;
    }
    const auto rows = tensor.size(0);
    const auto row_bytes = tensor.nbytes() / static_cast<std::size_t>(rows);
    const auto bytes = std::max(part_bytes, tensor.nbytes() / most_parts);
    const auto step = std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / row_bytes));
    std::int64_t part = 0;
    for (std::int64_t first = 0; first < rows; first += step, ++part) {
      const StateDict list{{name, tensor.narrow(0, first, std::min(step, rows - first)).cpu()}};
      writer.create_or_link(program_part_file(name, part), before.value_or(""), manifest,
                            [&](OutputFile& file) { write_safetensors(file, list, {}); });
    }
    parts.emplace(name, std::to_string(part));
  }
  write_tensors(writer, program_tensors_file, small, parts);
}

}  // namespace

std::string program_part_file(std::string_view tensor, std::int64_t part) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.[]";
  std::string name;
  for (const char c : tensor)
    if (plain.find(c) != plain.npos)
      name += c;
    else
      name += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return fmt::format("program_state/{}.{}.safetensors", name, part);
}

}  // namespace detail

void CheckpointContents::write(FolderWriter& writer,
                               const std::optional<std::filesystem::path>& before) const {
  write_model_files(writer, model);
  for (const auto& [file, list] : tensors)
    if (file == program_tensors_file)
      detail::write_program_tensors(writer, list, before);
    else
      detail::write_tensors(writer, file, list);
  for (const auto& [file, text] : texts) writer.write_text(file, text);
}

Manifest CheckpointContents::manifest() const {
  return {.libtorch = TORCH_VERSION, .global_step = step, .reason = reason};
}

namespace detail {

std::pair<std::int64_t, std::string> rank_and_name(const std::string& name) {
  constexpr std::string_view prefix = "ranks.";
  if (!name.starts_with(prefix)) return {0, name};
  std::int64_t rank = 0;
  const auto* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + prefix.size(), end, rank);
  if (error != std::errc() || rest == end || *rest != '.') return {0, name};
  return {rank, std::string(rest + 1, end)};
}

}  // namespace detail

}  // namespace etude::inline v0
