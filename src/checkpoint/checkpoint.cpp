#include "etude/checkpoint/checkpoint.hpp"

#include <torch/types.h>
#include <torch/version.h>

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

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

void CheckpointContents::write(FolderWriter& writer) const {
  write_model_files(writer, model);
  for (const auto& [file, list] : tensors) {
    const auto out = writer.create(file);
    write_safetensors(*out, list, {});
    out->finish();
  }
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
