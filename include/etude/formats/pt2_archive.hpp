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
#include "etude/io/file_text.hpp"

namespace etude::inline v0 {

/// A file that Python's torch.export.save wrote (`.pt2`, of torch 2.8 and later): graphs as JSON, the bytes
/// of tensors, and text files. Nothing in it is executed: sample inputs, which are pickles, aren't read.
/// Everything throws CheckpointError that begins with the name of the file.
class Pt2Archive {
 public:
  using NamedTensors = std::map<std::string, torch::Tensor>;

  explicit Pt2Archive(const std::filesystem::path& path) : Pt2Archive(ZipArchive(path)) {}

  /// Reads from memory that must outlive it; `name` is for messages.
  Pt2Archive(std::string_view bytes, std::string name) : Pt2Archive(ZipArchive(bytes, std::move(name))) {}

  const std::string& name() const { return zip_.name(); }

  /// The printable names of its graphs: "model" where a single one was saved.
  std::vector<std::string> models() const;

  /// The JSON of a graph.
  std::string graph(const std::string& model) const { return text(fmt::format("models/{}.json", model)); }

  /// The tensors of a graph's parameters and buffers, in CPU memory. Names of one tensor share it.
  NamedTensors weights(const std::string& model) const { return tensors("weights", model); }
  /// Its constants, and the buffers that aren't part of a state dict.
  NamedTensors constants(const std::string& model) const { return tensors("constants", model); }

  /// Writes a copy in which tensors have other values: `value(kind, model, name)` of kind "weights" or
  /// "constants", or null to keep one. They take the dtypes of this file. Throws CheckpointError for a file
  /// of torch 2.8, whose tensors are pickled, and if the copy can't be written.
  void save(const std::filesystem::path& path,
            const std::function<const torch::Tensor*(const std::string& kind, const std::string& model,
                                                     const std::string& name)>& value) const;

  /// The text files that were saved beside the graph (`extra_files` of torch.export.save), by name.
  std::map<std::string, std::string> extra_files() const;

 private:
  explicit Pt2Archive(ZipArchive zip);

  /// Extra files are written into folders of models and checkpoints.
  static bool may_lie_beside_weights(std::string_view file);

  CheckpointError fault(std::string_view entry, std::string_view what) const {
    return CheckpointError(fmt::format("{}: {}: {}", name(), detail::in_quotes(std::string(entry)), what));
  }

  /// torch doesn't compress, so that an entry is no larger than the file.
  std::string read_stored(std::string_view name, const ZipArchive::Entry& entry) const;

  const ZipArchive::Entry& entry_of(const std::string& record) const;

  std::string text(const std::string& record) const { return read_stored(record, entry_of(record)); }

  NamedTensors tensors(const std::string& kind, const std::string& model) const {
    Storages storages;
    return tensors(kind, model, storages);
  }

  /// The bytes of tensors, by record.
  using Storages = std::map<std::string, torch::Tensor>;

  /// Adds to `storages`, or takes from there.
  NamedTensors tensors(const std::string& kind, const std::string& model, Storages& storages) const;

  static std::string config_of(const std::string& kind, const std::string& model) {
    return fmt::format("data/{0}/{1}_{0}_config.json", kind, model);
  }

  torch::Tensor storage_of(const std::string& record, const std::string& what) const;

  static std::int64_t integer(const detail::ExportedJson& size, const std::string& what);

  static std::vector<std::int64_t> integers(const detail::ExportedJson& list, const std::string& what);

  /// The last element must lie within the storage, and the number of elements must not overflow, though a
  /// stride of 0 makes more of them than there are bytes.
  static void check_extent(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides,
                           std::int64_t offset, std::size_t item_size, std::size_t bytes,
                           const std::string& what);

  /// As torch 2.8 wrote them: by torch.save, from which tensors are read without executing anything.
  NamedTensors pickled_tensors(const std::string& record) const;

  ZipArchive zip_;
  std::string prefix_;
};

}  // namespace etude::inline v0
