#pragma once

#ifndef ETUDE_EXPORTED
#error "etude/formats/pt2_archive.hpp needs a library: link etude::exported"
#endif

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/utf8.hpp"
#include "etude/formats/exported_json.hpp"
#include "etude/formats/safetensors_header.hpp"
#include "etude/formats/torch_file.hpp"
#include "etude/formats/zip_archive.hpp"
#include "etude/io/entry_name.hpp"

namespace etude::inline v0 {

/// A file written by Python's torch.export.save (`.pt2`, torch 2.8 and later): graphs as JSON, the bytes of
/// tensors, and text files. Nothing in it is executed: the sample inputs, which are pickles, aren't read. All
/// functions throw a CheckpointError that begins with the name of the file.
class Pt2Archive {
 public:
  using NamedTensors = std::map<std::string, torch::Tensor>;

  explicit Pt2Archive(const std::filesystem::path& path) : Pt2Archive(ZipArchive(path)) {}

  /// Reads from memory that must outlive it; `name` is for messages.
  Pt2Archive(std::string_view bytes, std::string name) : Pt2Archive(ZipArchive(bytes, std::move(name))) {}

  const std::string& name() const { return zip_.name(); }

  /// The printable names of its graphs: "model" if a single one was saved.
  std::vector<std::string> models() const;

  /// The JSON of a graph.
  std::string graph(const std::string& model) const { return text(fmt::format("models/{}.json", model)); }

  /// A graph's parameters and buffers, in CPU memory. Several names of one tensor share its memory.
  NamedTensors weights(const std::string& model) const { return tensors("weights", model); }
  /// A graph's constants, and the buffers that aren't part of its state dict.
  NamedTensors constants(const std::string& model) const { return tensors("constants", model); }

  /// Writes a copy of the file with new tensor values: `value(kind, model, name)` returns one, or null to
  /// keep the old value; `kind` is "weights" or "constants". Values are converted to the dtypes of this file.
  /// Throws CheckpointError for a file written by torch 2.8, whose tensors are pickled, and if the copy can't
  /// be written.
  void save(const std::filesystem::path& path,
            const std::function<const torch::Tensor*(const std::string& kind, const std::string& model,
                                                     const std::string& name)>& value) const;

  /// The bytes of a file in the folder compiled/; unset if there is none. `tools/export.py --compile` writes
  /// that folder, which PyTorch ignores.
  std::optional<std::string> compiled_file(const std::string& file) const;

  /// The text files that were saved with the graph (`extra_files` of torch.export.save), by name.
  std::map<std::string, std::string> extra_files() const;

 private:
  explicit Pt2Archive(ZipArchive zip);

  /// Extra files are written into the folders of models and checkpoints, so their names must be safe there.
  static bool may_lie_beside_weights(std::string_view file);

  CheckpointError fault(std::string_view entry, std::string_view what) const {
    return CheckpointError(fmt::format("{}: {}: {}", name(), detail::in_quotes(std::string(entry)), what));
  }

  /// Refuses a compressed entry, which torch never writes, so that no entry is larger than the file.
  std::string read_stored(std::string_view name, const ZipArchive::Entry& entry) const;

  const ZipArchive::Entry& entry_of(const std::string& record) const;

  std::string text(const std::string& record) const { return read_stored(record, entry_of(record)); }

  NamedTensors tensors(const std::string& kind, const std::string& model) const {
    Storages storages;
    return tensors(kind, model, storages);
  }

  /// The storages read so far, by record name.
  using Storages = std::map<std::string, torch::Tensor>;

  /// Reuses the storages in `storages`, and adds the storages that it reads.
  NamedTensors tensors(const std::string& kind, const std::string& model, Storages& storages) const;

  static std::string config_of(const std::string& kind, const std::string& model) {
    return fmt::format("data/{0}/{1}_{0}_config.json", kind, model);
  }

  torch::Tensor storage_of(const std::string& record, const std::string& what) const;

  static std::int64_t integer(const detail::ExportedJson& size, const std::string& what);

  static std::vector<std::int64_t> integers(const detail::ExportedJson& list, const std::string& what);

  /// The last element must lie within the storage, and the number of elements must not overflow: with a
  /// stride of 0 it can exceed the number of bytes.
  static void check_extent(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides,
                           std::int64_t offset, std::size_t item_size, std::size_t bytes,
                           const std::string& what);

  /// Reads the tensors of a file from torch 2.8, which wrote them with torch.save, without executing
  /// anything.
  NamedTensors pickled_tensors(const std::string& record) const;

  ZipArchive zip_;
  std::string prefix_;
};

}  // namespace etude::inline v0
