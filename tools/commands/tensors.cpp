#include "tensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/formats/safetensors_header.hpp"
#include "etude/formats/torch_archive.hpp"
#include "etude/formats/torch_names.hpp"
#include "etude/io/mapped_file.hpp"
#include "etude/study/trial_text.hpp"
#include "output.hpp"

namespace tool {

std::uint64_t TensorInfo::elements() const {
  return std::accumulate(
      shape.begin(), shape.end(), std::uint64_t{1},
      [](std::uint64_t product, std::int64_t size) { return product * static_cast<std::uint64_t>(size); });
}

std::uint64_t TensorFile::elements() const {
  std::uint64_t sum = 0;
  for (const auto& tensor : tensors) sum += tensor.elements();
  return sum;
}

std::uint64_t TensorFile::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& tensor : tensors) sum += tensor.bytes;
  return sum;
}

std::string python_dtype(std::string_view name) {
  const auto& all = etude::detail::torch_dtypes;
  const auto* found = std::ranges::find(all, name, &etude::detail::TorchDtype::libtorch);
  if (found == all.end()) return std::string(name);
  return std::string(found->python.substr(std::string_view("torch.").size()));
}

TensorFile safetensors_info(const std::filesystem::path& path) try {
  const etude::MappedFile mapped(path);
  auto header = etude::read_safetensors_header(mapped.bytes());
  TensorFile file{.tensors = {}, .tied = {}, .metadata = std::move(header.metadata), .skipped = {}};
  std::set<std::string> names;
  for (auto& entry : header.tensors) {
    names.insert(entry.name);
    file.tensors.push_back({std::move(entry.name), python_dtype(entry.dtype->torch_name),
                            std::move(entry.shape), entry.end - entry.begin});
  }
  // Python's safetensors lists tied tensors' names in the metadata.
  for (const auto& [name, kept] : file.metadata)
    if (names.contains(kept) && !names.contains(name) && name != "format") file.tied.emplace(name, kept);
  std::ranges::sort(file.tensors, {}, &TensorInfo::name);
  return file;
} catch (const etude::CheckpointError& error) {
  const std::string_view message = error.what();
  if (message.starts_with(path.string())) throw;
  throw etude::CheckpointError(fmt::format("{}: {}", path.string(), message));
}

TensorFile torch_info(const std::filesystem::path& path, std::string_view key) {
  const etude::TorchArchive archive(path);
  auto state_dict = key.empty() ? archive.all_tensors() : archive.state_dict(key);
  TensorFile file;
  file.skipped = std::move(state_dict.skipped);
  using Memory = std::tuple<std::string, std::string, std::int64_t, std::vector<std::int64_t>,
                            std::vector<std::int64_t>>;
  std::map<Memory, std::string> first;
  for (auto& record : state_dict.tensors) {
    const auto [known, is_new] = first.try_emplace(
        {record.storage, record.dtype, record.offset, record.sizes, record.strides}, record.name);
    if (!is_new && record.bytes() > 0) {
      file.tied.emplace(record.name, known->second);
    } else {
      const auto bytes = record.bytes();
      file.tensors.push_back(
          {std::move(record.name), python_dtype(record.dtype), std::move(record.sizes), bytes});
    }
  }
  return file;
}

std::string totals_text(const TensorFile& file) {
  return fmt::format("{}, {}, {}", counted(file.tensors.size(), "tensor"),
                     counted(file.elements(), "element"), bytes_text(file.bytes()));
}

std::string tensor_table(const TensorFile& file) {
  constexpr std::size_t widest = 70;
  std::vector<std::vector<std::string>> rows;
  for (const auto& tensor : file.tensors)
    rows.push_back({etude::detail::cut_name(tensor.name, widest), tensor.dtype,
                    fmt::format("[{}]", fmt::join(tensor.shape, ", ")), bytes_text(tensor.bytes)});
  for (const auto& [name, kept] : file.tied)
    rows.push_back(
        {etude::detail::cut_name(name, widest), "is " + etude::detail::cut_name(kept, widest), "", ""});
  return table(rows, "lllr");
}

nlohmann::ordered_json tensors_json(const TensorFile& file, bool list) {
  nlohmann::ordered_json json = {
      {"count", file.tensors.size()}, {"elements", file.elements()}, {"bytes", file.bytes()}};
  if (!list) return json;
  auto tensors = nlohmann::ordered_json::array();
  for (const auto& tensor : file.tensors)
    tensors.push_back(
        {{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"bytes", tensor.bytes}});
  json["tensors"] = std::move(tensors);
  json["tied"] = file.tied;
  return json;
}

}  // namespace tool
