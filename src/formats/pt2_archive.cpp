#include "etude/formats/pt2_archive.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace etude::inline v0 {

std::vector<std::string> Pt2Archive::models() const {
  std::vector<std::string> result;
  for (const auto& [name, entry] : zip_.entries())
    if (name.starts_with(prefix_ + "models/") && name.ends_with(".json"))
      result.push_back(detail::printable(name.substr(prefix_.size() + 7, name.size() - prefix_.size() - 12)));
  return result;
}

std::map<std::string, std::string> Pt2Archive::extra_files() const {
  std::map<std::string, std::string> result;
  for (const auto& [name, entry] : zip_.entries())
    if (name.starts_with(prefix_ + "extra/")) {
      const auto file = name.substr(prefix_.size() + 6);
      if (!may_lie_beside_weights(file))
        throw fault(name, "it isn't the name of a file that may lie beside the weights of a checkpoint");
      result.emplace(file, read_stored(name, entry));
    }
  return result;
}

std::optional<std::string> Pt2Archive::compiled_file(const std::string& file) const {
  const auto record = fmt::format("compiled/{}", file);
  const auto* entry = zip_.find(prefix_ + record);
  return entry ? std::optional(read_stored(record, *entry)) : std::nullopt;
}

Pt2Archive::Pt2Archive(ZipArchive zip) : zip_(std::move(zip)) {
  for (const auto& [name, entry] : zip_.entries())
    if (const auto slash = name.find('/'); slash != name.npos && name.substr(slash) == "/archive_format") {
      if (!prefix_.empty()) throw fault(name, "it is a second archive in one file");
      prefix_ = name.substr(0, slash + 1);
    }
  if (prefix_.empty() || text("archive_format") != "pt2")
    throw CheckpointError(
        name() + ": torch.export.save of torch 2.8 or later didn't write it: it has no archive_format 'pt2'");
  if (text("archive_version") != "0") throw fault("archive_version", "only version 0 can be read");
  if (zip_.find(prefix_ + "byteorder") && text("byteorder") != "little")
    throw fault("byteorder", "only 'little' can be read");
}

bool Pt2Archive::may_lie_beside_weights(std::string_view file) {
  constexpr std::array own{"trainer_state", "training_", "optimizer", "scheduler", "best_model", "etude_"};
  constexpr std::size_t longest = 255;  // allowed on every file system
  return detail::fault_of_entry_name(file).empty() && file.find('/') == file.npos && is_utf8(file) &&
         file.size() <= longest && !file.ends_with(".safetensors") && !file.ends_with("_results.json") &&
         !file.starts_with("model.safetensors") &&
         std::ranges::none_of(own, [&](std::string_view name) { return file.starts_with(name); });
}

std::string Pt2Archive::read_stored(std::string_view name, const ZipArchive::Entry& entry) const {
  if (entry.size != entry.compressed_size) throw fault(name, "it is compressed");
  return zip_.read(entry);
}

const ZipArchive::Entry& Pt2Archive::entry_of(const std::string& record) const {
  const auto* entry = zip_.find(prefix_ + record);
  return entry ? *entry
               : throw CheckpointError(fmt::format("{}: it has no {}", name(), detail::in_quotes(record)));
}

Pt2Archive::NamedTensors Pt2Archive::tensors(const std::string& kind, const std::string& model,
                                             Storages& storages) const {
  const auto folder = fmt::format("data/{}/", kind);
  const auto config = config_of(kind, model);
  if (!zip_.find(prefix_ + config)) return pickled_tensors(fmt::format("{}{}.pt", folder, model));
  const auto where = fmt::format("{}: {}", name(), config);
  const auto json = detail::exported_json(text(config), where);
  const auto& entries = detail::exported_member(json, "config", where);
  if (!entries.is_object()) throw CheckpointError(where + ": config isn't an object");
  std::set<std::string> bools;  // storages already validated
  // Expanded tensors can be much larger than the file; beyond this limit the file is an attack.
  const auto most = (std::uint64_t{1} << 26) + 64 * zip_.file_size();
  std::uint64_t total = 0;
  std::map<std::tuple<std::string, std::vector<std::int64_t>, std::vector<std::int64_t>, std::int64_t,
                      torch::ScalarType>,
           torch::Tensor>
      seen;
  NamedTensors result;
  for (const auto& [tensor, payload] : entries.items()) {
    const auto what = fmt::format("{}: tensor {}", where, detail::in_quotes(tensor));
    if (detail::exported_member(payload, "use_pickle", what) != false)
      throw CheckpointError(what + ": it is pickled, which isn't read: it must be a plain tensor");
    const auto& meta = detail::exported_member(payload, "tensor_meta", what);
    const auto sizes = integers(detail::exported_member(meta, "sizes", what), what);
    const auto strides = integers(detail::exported_member(meta, "strides", what), what);
    const auto offset = integer(detail::exported_member(meta, "storage_offset", what), what);
    const auto dtype = detail::exported_dtype(detail::exported_member(meta, "dtype", what), what);
    const auto& path = detail::exported_text(detail::exported_member(payload, "path_name", what), what);
    auto& bytes = storages[folder + path];
    if (!bytes.defined()) bytes = storage_of(folder + path, what);
    check_extent(sizes, strides, offset, c10::elementSize(dtype), bytes.nbytes(), what);
    auto& same = seen[{path, sizes, strides, offset, dtype}];
    if (!same.defined()) {
      same = at::empty({0}, at::TensorOptions().dtype(dtype));
      same.set_(bytes.storage(), offset, sizes, strides);
      total += same.nbytes();
      if (total > most)
        throw CheckpointError(fmt::format("{}: its tensors have more than {} bytes", what, most));
      if (dtype == torch::kBool && bools.insert(path).second &&
          !detail::are_bools({static_cast<const std::byte*>(bytes.data_ptr()), bytes.nbytes()}))
        throw CheckpointError(what + ": a bool must be 0 or 1");
    }
    result.emplace(tensor, same);
  }
  return result;
}

void Pt2Archive::save(const std::filesystem::path& path,
                      const std::function<const torch::Tensor*(const std::string&, const std::string&,
                                                               const std::string&)>& value) const {
  const torch::NoGradGuard no_grad;
  Storages storages;
  for (const auto& model : models())
    for (const std::string kind : {"weights", "constants"}) {
      if (!zip_.find(prefix_ + config_of(kind, model))) {
        if (zip_.find(fmt::format("{}data/{}/{}.pt", prefix_, kind, model)))
          throw CheckpointError(name() +
                                ": its tensors are pickled, as torch 2.8 wrote them: to save it with other "
                                "weights, export it with torch 2.9 or later");
        continue;
      }
      for (auto& [name, tensor] : tensors(kind, model, storages)) {
        const auto* now = value(kind, model, name);
        // An expanded tensor can't be written to, so it is left alone unless its values differ.
        if (now && !tensor.equal(now->to(tensor.options()))) tensor.copy_(*now);
      }
    }
  std::map<std::string, std::string_view> replaced;
  for (const auto& [record, bytes] : storages)
    replaced.emplace(prefix_ + record,
                     std::string_view(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes()));
  zip_.save(path, replaced);
}

torch::Tensor Pt2Archive::storage_of(const std::string& record, const std::string& what) const {
  const auto& entry = entry_of(record);
  if (entry.size != entry.compressed_size) throw CheckpointError(what + ": its bytes are compressed");
  auto bytes = at::empty({static_cast<std::int64_t>(entry.size)}, at::TensorOptions().dtype(at::kByte));
  zip_.read(entry, bytes.data_ptr());
  return bytes;
}

std::int64_t Pt2Archive::integer(const detail::ExportedJson& size, const std::string& what) {
  const auto value = detail::exported_integer(detail::exported_member(size, "as_int", what), what);
  if (value < 0) throw CheckpointError(fmt::format("{}: a size, stride or offset is {}", what, value));
  return value;
}

std::vector<std::int64_t> Pt2Archive::integers(const detail::ExportedJson& list, const std::string& what) {
  std::vector<std::int64_t> result;
  for (const auto& each : detail::exported_list(list, what)) result.push_back(integer(each, what));
  if (result.size() > 64) throw CheckpointError(what + ": it has more than 64 dimensions");
  return result;
}

void Pt2Archive::check_extent(const std::vector<std::int64_t>& sizes,
                              const std::vector<std::int64_t>& strides, std::int64_t offset,
                              std::size_t item_size, std::size_t bytes, const std::string& what) {
  if (sizes.size() != strides.size())
    throw CheckpointError(what + ": its numbers of sizes and strides differ");
  if (!detail::bytes_of_array(sizes, item_size) ||
      !detail::lies_within(sizes, strides, offset, bytes / item_size))
    throw CheckpointError(fmt::format("{}: it goes past its {} bytes", what, bytes));
}

Pt2Archive::NamedTensors Pt2Archive::pickled_tensors(const std::string& record) const {
  const auto bytes = text(record);
  NamedTensors result;
  if (bytes.empty()) return result;
  std::map<std::tuple<const void*, std::vector<std::int64_t>, std::vector<std::int64_t>, torch::ScalarType>,
           torch::Tensor>
      seen;
  const TorchArchive archive(bytes, fmt::format("{}: {}", name(), record));
  for (auto& [tensor, value] : detail::load_described(archive, archive.all_tensors()).tensors)
    result.emplace(tensor, seen.emplace(std::tuple(value.data_ptr(), value.sizes().vec(),
                                                   value.strides().vec(), value.scalar_type()),
                                        value)
                               .first->second);
  return result;
}

}  // namespace etude::inline v0
