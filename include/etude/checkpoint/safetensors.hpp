#pragma once

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/data/tensors.hpp"
#include "etude/error.hpp"

namespace etude {

/// What a safetensors file holds: tensors in the order of their bytes, and text by name.
struct SafeTensors {
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  std::map<std::string, std::string> metadata;
};

namespace detail {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

// The format's dtypes that LibTorch has, in the format's order, with LibTorch's name: what is not in this
// LibTorch is then found by no name.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 19> safetensors_dtypes = {{
    {"BOOL", "Bool"},
    {"U8", "Byte"},
    {"I8", "Char"},
    {"F8_E5M2", "Float8_e5m2"},
    {"F8_E4M3", "Float8_e4m3fn"},
    {"F8_E8M0", "Float8_e8m0fnu"},
    {"F8_E4M3FNUZ", "Float8_e4m3fnuz"},
    {"F8_E5M2FNUZ", "Float8_e5m2fnuz"},
    {"I16", "Short"},
    {"U16", "UInt16"},
    {"F16", "Half"},
    {"BF16", "BFloat16"},
    {"I32", "Int"},
    {"U32", "UInt32"},
    {"F32", "Float"},
    {"C64", "ComplexFloat"},
    {"F64", "Double"},
    {"I64", "Long"},
    {"U64", "UInt64"},
}};

inline constexpr std::uint64_t max_safetensors_header = 100'000'000;

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

inline File open_file(const std::filesystem::path& path, const char* mode) {
  File file(std::fopen(path.c_str(), mode));
  if (!file)
    throw CheckpointError(fmt::format("{}: can't be opened: {}", path.string(), std::strerror(errno)));
  return file;
}

/// Reads a safetensors file; `file_size` bounds every size that the file states.
class SafeTensorsReader {
 public:
  explicit SafeTensorsReader(std::filesystem::path path)
      : path_(std::move(path)), file_(open_file(path_, "rb")) {
    std::error_code error;
    file_size_ = std::filesystem::file_size(path_, error);
    if (error) throw fault("its size can't be read: {}", error.message());
  }

  SafeTensors read() {
    auto entries = read_header();
    std::ranges::sort(entries, {}, [](const Entry& entry) { return std::pair(entry.begin, entry.end); });
    std::uint64_t position = 0;
    for (const auto& entry : entries) {
      if (entry.begin != position) {
        throw fault("tensor '{}': data_offsets begin at {}, but the bytes before end at {}", entry.name,
                    entry.begin, position);
      }
      position = entry.end;
    }
    if (position != buffer_size_) throw fault("the tensors end at byte {} of {}", position, buffer_size_);
    for (const auto& entry : entries) result_.tensors.emplace_back(entry.name, read_tensor(entry));
    return std::move(result_);
  }

 private:
  struct Entry {
    std::string name;
    torch::ScalarType dtype;
    std::vector<std::int64_t> shape;
    std::uint64_t begin, end;
  };

  template <class... Args>
  CheckpointError fault(fmt::format_string<Args...> text, Args&&... args) const {
    return CheckpointError(path_.string() + ": " + fmt::format(text, std::forward<Args>(args)...));
  }

  void read_bytes(void* to, std::size_t size) {
    if (size > 0 && std::fread(to, 1, size, file_.get()) != size) throw fault("it can't be read to its end");
  }

  std::vector<Entry> read_header() {
    std::uint64_t length = 0;
    if (file_size_ < sizeof length)
      throw fault("it has {} bytes, too few for a safetensors file", file_size_);
    read_bytes(&length, sizeof length);
    if (length > max_safetensors_header || length > file_size_ - sizeof length) {
      throw fault("header length: {} in a file of {} bytes; at most {} are allowed", length, file_size_,
                  max_safetensors_header);
    }
    buffer_size_ = file_size_ - sizeof length - length;
    std::string text(length, '\0');
    read_bytes(text.data(), text.size());
    if (!text.starts_with('{')) throw fault("header: it must begin with '{{'");
    return read_entries(parse(text));
  }

  nlohmann::json parse(const std::string& text) const {
    using Event = nlohmann::json::parse_event_t;
    std::vector<std::set<std::string>>
        keys;  // of the objects that are open: a parser keeps the last of two and is silent
    const auto check = [&](int depth, Event event, nlohmann::json& value) {
      if (depth > 3) throw fault("header: it is nested too deeply");
      if (event == Event::object_start) keys.emplace_back();
      if (event == Event::object_end) keys.pop_back();
      if (event == Event::key && !keys.back().insert(value.get<std::string>()).second) {
        throw fault("header: '{}' is there twice", value.get<std::string>());
      }
      return true;
    };
    try {
      return nlohmann::json::parse(text, check);
    } catch (const nlohmann::json::exception& error) {
      throw fault("header: {}", error.what());
    }
  }

  std::vector<Entry> read_entries(const nlohmann::json& header) {
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name != "__metadata__") {
        entries.push_back(read_entry(name, value));
        continue;
      }
      if (!value.is_object()) throw fault("__metadata__: it must be an object");
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) throw fault("__metadata__: '{}' must be a string", key);
        result_.metadata.emplace(key, text.get<std::string>());
      }
    }
    return entries;
  }

  Entry read_entry(const std::string& name, const nlohmann::json& value) const {
    if (!value.is_object()) throw fault("tensor '{}': it must be an object", name);
    const auto field = [&](const char* key) {
      return value.contains(key) ? value[key] : throw fault("tensor '{}': {} is missing", name, key);
    };
    Entry entry{name, read_dtype(name, field("dtype")), {}, 0, 0};

    const auto shape = read_numbers(name, "shape", field("shape"));
    if (shape.size() > 64)
      throw fault("tensor '{}': shape: it has {} dimensions; at most 64 are allowed", name, shape.size());
    // Bytes are counted as if no dimension were empty: LibTorch multiplies so for strides.
    const auto item_size = c10::elementSize(entry.dtype);
    std::uint64_t bytes = item_size;
    for (const auto size : shape) {
      const auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
      if (size > most / std::max<std::uint64_t>(bytes, 1))
        throw fault("tensor '{}': shape: it is too large", name);
      bytes *= std::max<std::uint64_t>(size, 1);
      entry.shape.push_back(static_cast<std::int64_t>(size));
    }
    if (std::ranges::count(shape, 0u) > 0) bytes = 0;

    const auto offsets = read_numbers(name, "data_offsets", field("data_offsets"));
    if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > buffer_size_) {
      throw fault("tensor '{}': data_offsets: {} isn't a range of the {} bytes in the file", name,
                  value["data_offsets"].dump(), buffer_size_);
    }
    entry.begin = offsets[0];
    entry.end = offsets[1];
    if (entry.end - entry.begin != bytes) {
      throw fault("tensor '{}': data_offsets: {} bytes, but its dtype and shape need {}", name,
                  entry.end - entry.begin, bytes);
    }
    return entry;
  }

  torch::ScalarType read_dtype(const std::string& name, const nlohmann::json& value) const {
    if (!value.is_string()) throw fault("tensor '{}': dtype: it must be a string", name);
    const auto text = value.get<std::string>();
    for (const auto& [ours, torchs] : safetensors_dtypes) {
      if (ours != text) continue;
      for (int i = 0; i < static_cast<int>(torch::ScalarType::NumOptions); ++i) {
        if (c10::toString(static_cast<torch::ScalarType>(i)) == torchs)
          return static_cast<torch::ScalarType>(i);
      }
    }
    throw fault("tensor '{}': dtype: this LibTorch has no {}", name, text);
  }

  std::vector<std::uint64_t> read_numbers(const std::string& name, const char* key,
                                          const nlohmann::json& value) const {
    std::vector<std::uint64_t> numbers;
    for (const auto& number : value) {
      if (!number.is_number_unsigned()) break;
      numbers.push_back(number.get<std::uint64_t>());
    }
    if (value.is_array() && numbers.size() == value.size()) return numbers;
    throw fault("tensor '{}': {}: it must be a list of whole numbers from 0", name, key);
  }

  torch::Tensor read_tensor(const Entry& entry) {
    auto tensor = at::empty(entry.shape, at::TensorOptions().dtype(entry.dtype));
    auto* bytes = static_cast<unsigned char*>(tensor.data_ptr());
    const auto size = static_cast<std::size_t>(entry.end - entry.begin);
    read_bytes(bytes, size);
    if (entry.dtype == torch::kBool &&
        std::any_of(bytes, bytes + size, [](unsigned char byte) { return byte > 1; })) {
      throw fault("tensor '{}': a BOOL must be 0 or 1", entry.name);
    }
    return tensor;
  }

  std::filesystem::path path_;
  File file_;
  std::uint64_t file_size_ = 0, buffer_size_ = 0;
  SafeTensors result_;
};

// The place of a tensor's dtype among the format's.
inline std::size_t safetensors_dtype(const std::string& name, const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != torch::kStrided) {
    throw CheckpointError(fmt::format("tensor '{}': only dense tensors can be saved", name));
  }
  const std::string_view torchs = c10::toString(tensor.scalar_type());
  const auto* found =
      std::ranges::find(safetensors_dtypes, torchs, [](const auto& dtype) { return dtype.second; });
  if (found != safetensors_dtypes.end()) return static_cast<std::size_t>(found - safetensors_dtypes.begin());
  throw CheckpointError(
      fmt::format("tensor '{}': safetensors has no dtype for {}", name, dtype_name(tensor.scalar_type())));
}

}  // namespace detail

/// Reads the tensors and the metadata of a safetensors file into memory of the CPU. Nothing in the file is
/// believed before it is checked; throws CheckpointError that names the file and the field.
inline SafeTensors load_safetensors(const std::filesystem::path& path) {
  return detail::SafeTensorsReader(path).read();
}

/// Writes a safetensors file that Python's package reads. It is written beside `path` and takes its place
/// when it is whole, so a crash leaves the old file. A tensor that has two names is written twice. Throws
/// CheckpointError for a name that is there twice or reserved, a tensor that the format can't hold, and when
/// writing fails.
inline void save_safetensors(const std::filesystem::path& path,
                             const std::vector<std::pair<std::string, torch::Tensor>>& tensors,
                             const std::map<std::string, std::string>& metadata = {}) {
  struct Part {
    std::size_t dtype;
    const std::string* name;
    const torch::Tensor* tensor;
  };
  std::vector<Part> parts;
  for (const auto& [name, tensor] : tensors)
    parts.push_back({detail::safetensors_dtype(name, tensor), &name, &tensor});
  // Wide types first, so that each tensor is aligned.
  std::ranges::sort(parts, [](const Part& a, const Part& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : *a.name < *b.name;
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  std::set<std::string_view> names{"__metadata__"};
  for (const auto& part : parts) {
    if (!names.insert(*part.name).second) {
      throw CheckpointError(fmt::format("tensor '{}': the name is there twice, or reserved", *part.name));
    }
    const auto end = offset + part.tensor->nbytes();
    header.push_back({*part.name,
                      {{"dtype", detail::safetensors_dtypes[part.dtype].first},
                       {"shape", part.tensor->sizes().vec()},
                       {"data_offsets", {offset, end}}}});
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(
        fmt::format("{}: a name or the metadata isn't UTF-8: {}", path.string(), error.what()));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');

  const std::filesystem::path partial = path.string() + ".partial";
  try {
    auto file = detail::open_file(partial, "wb");
    const auto write = [&](const void* bytes, std::size_t size) {
      if (size > 0 && std::fwrite(bytes, 1, size, file.get()) != size) {
        throw CheckpointError(
            fmt::format("{}: can't be written: {}", partial.string(), std::strerror(errno)));
      }
    };
    const std::uint64_t length = text.size();
    write(&length, sizeof length);
    write(text.data(), text.size());
    for (const auto& part : parts) {
      const auto tensor = part.tensor->detach().cpu().resolve_conj().resolve_neg().contiguous();
      write(tensor.data_ptr(), tensor.nbytes());
    }
    if (std::fflush(file.get()) != 0 || fsync(fileno(file.get())) != 0) {
      throw CheckpointError(fmt::format("{}: can't be written: {}", partial.string(), std::strerror(errno)));
    }
    file.reset();
    std::filesystem::rename(partial, path);
  } catch (const std::exception& error) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    if (dynamic_cast<const CheckpointError*>(&error)) throw;
    throw CheckpointError(fmt::format("{}: can't be written: {}", path.string(), error.what()));
  }
}

}  // namespace etude
