#include "etude/formats/safetensors_header.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "etude/base/byte_order.hpp"

namespace etude::inline v0::detail {

std::string safetensors_dtype_names() {
  std::string names;
  for (const auto& dtype : safetensors_dtypes) names.append(names.empty() ? "" : ", ").append(dtype.name);
  return names;
}

namespace {

/// Parses a header's JSON token by token and keeps only well-formed entries, so that a malicious one costs no
/// more memory than a few times its own length.
class SafeTensorsHeaderReader final : public nlohmann::ordered_json::json_sax_t {
 public:
  SafeTensorsHeaderReader(SafeTensorsHeader& header, std::uint64_t data_size)
      : header_(header), data_size_(data_size) {}

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::header;
    } else if (place_ == Place::header) {
      place_ = in_metadata_ ? Place::metadata : Place::tensor;
    } else {
      start_skipped();
    }
    return true;
  }

  bool end_object() override {
    if (skipped_ > 0) {
      --skipped_;
    } else if (place_ == Place::header) {
      place_ = Place::outside;
    } else {
      if (place_ == Place::tensor) finish_tensor();
      place_ = Place::header;
    }
    return true;
  }

  bool key(std::string& name) override {
    if (skipped_ > 0) return true;
    bool is_new = true;
    if (place_ == Place::metadata) {
      is_new = !header_.metadata.contains(name);
    } else if (place_ == Place::tensor) {
      is_new = !is_field(name) || fields_.insert(name).second;
    } else {
      in_metadata_ = name == "__metadata__";
      is_new = names_.insert(name).second;
      fields_.clear();
      shape_.clear();
      offsets_.clear();
      entry_ = {};
      entry_.name = name;
    }
    if (!is_new) throw safetensors_fault("header: '{}' appears twice", printable(name));
    key_ = std::move(name);
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::tensor && skipped_ == 0 && is_list()) {
      place_ = Place::numbers;
      count_ = 0;
    } else {
      start_skipped();
    }
    return true;
  }

  bool end_array() override {
    if (skipped_ > 0) {
      --skipped_;
    } else {
      place_ = Place::tensor;
      if (key_ == "shape" && count_ > most_dimensions)
        throw tensor_fault("shape: it has {} dimensions; at most {} are allowed", count_, most_dimensions);
      if (key_ == "data_offsets" && count_ != 2)
        throw tensor_fault("data_offsets: it has {} numbers; it must have 2", count_);
    }
    return true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::metadata) {
      header_.metadata.emplace(key_, std::move(text));
    } else if (place_ == Place::tensor && skipped_ == 0 && key_ == "dtype") {
      entry_.dtype = std::ranges::find(safetensors_dtypes, text, &FileDtype::name);
      if (entry_.dtype == safetensors_dtypes.end())
        throw tensor_fault("dtype: {} is unknown; must be one of {}", printable(text),
                           safetensors_dtype_names());
    } else {
      skip();
    }
    return true;
  }

  bool number_unsigned(std::uint64_t number) override {
    if (place_ != Place::numbers) return skip();
    if (count_++ < most_dimensions) (key_ == "shape" ? shape_ : offsets_).push_back(number);
    return true;
  }

  bool number_integer(std::int64_t) override { return skip(); }
  bool number_float(double, const std::string&) override { return skip(); }
  bool null() override {
    return (place_ == Place::header && in_metadata_) || skip();
  }  // ignored, as if it were missing
  bool boolean(bool) override { return skip(); }
  bool binary(nlohmann::json::binary_t&) override { return skip(); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw safetensors_fault("header: it isn't JSON in UTF-8, at byte {}", position);
  }

 private:
  enum class Place { outside, header, metadata, tensor, numbers };
  static constexpr std::size_t most_dimensions = 64;  // LibTorch's limit

  template <class... Args>
  CheckpointError tensor_fault(fmt::format_string<Args...> text, Args&&... args) const {
    return safetensors_fault("tensor '{}': {}", printable(entry_.name),
                             fmt::format(text, std::forward<Args>(args)...));
  }

  static bool is_field(std::string_view name) {
    return name == "dtype" || name == "shape" || name == "data_offsets";
  }
  bool is_list() const { return key_ == "shape" || key_ == "data_offsets"; }

  // Returns true for a value that may be skipped, in an unknown field of a tensor; throws for any other
  // value.
  bool skip() const {
    if (skipped_ > 0) return true;
    if (place_ == Place::metadata)
      throw safetensors_fault("__metadata__: '{}' must be a string", printable(key_));
    if (place_ == Place::numbers || (place_ == Place::tensor && is_list()))
      throw tensor_fault("{}: it must be a list of whole numbers from 0", key_);
    if (place_ == Place::tensor && key_ == "dtype") throw tensor_fault("dtype: it must be a string");
    if (place_ == Place::tensor) return true;
    throw in_metadata_ ? safetensors_fault("__metadata__: it must be an object")
                       : tensor_fault("it must be an object");
  }

  void start_skipped() {
    skip();
    if (++skipped_ > 2) throw safetensors_fault("header: it is nested too deeply");
  }

  void finish_tensor() {
    for (const auto* field : {"dtype", "shape", "data_offsets"})
      if (!fields_.contains(field)) throw tensor_fault("{} is missing", field);
    const bool is_addressable =
        std::ranges::all_of(shape_, [](std::uint64_t size) { return std::in_range<std::int64_t>(size); });
    entry_.shape.assign(shape_.begin(), shape_.end());
    const auto bytes = bytes_of_array(entry_.shape, entry_.dtype->item_size);
    if (!is_addressable || !bytes) throw tensor_fault("shape: it is too large");
    if (offsets_[0] > offsets_[1] || offsets_[1] > data_size_)
      throw tensor_fault("data_offsets: [{},{}] isn't a range of the {} bytes in the file", offsets_[0],
                         offsets_[1], data_size_);
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    if (entry_.end - entry_.begin != *bytes)
      throw tensor_fault("data_offsets: {} bytes, but its dtype and shape need {}", entry_.end - entry_.begin,
                         *bytes);
    header_.tensors.push_back(std::move(entry_));
  }

  SafeTensorsHeader& header_;
  std::uint64_t data_size_;
  Place place_ = Place::outside;
  bool in_metadata_ = false;
  int skipped_ = 0;  // depth inside a skipped value
  std::size_t count_ = 0;
  std::string key_;
  std::set<std::string> names_, fields_;
  std::vector<std::uint64_t> shape_, offsets_;
  SafeTensorsEntry entry_;
};

}  // namespace

bool are_bools(std::span<const std::byte> bytes) {
  std::byte seen{};
  for (const auto byte : bytes) seen |= byte;  // no early exit, so that the loop is vectorized
  return (seen & ~std::byte{1}) == std::byte{};
}

}  // namespace etude::inline v0::detail

namespace etude::inline v0 {

SafeTensorsHeader read_safetensors_header(std::span<const std::byte> file) {
  using detail::safetensors_fault;
  constexpr std::size_t prefix = 8;
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  if (bytes.size() < prefix)
    throw safetensors_fault("it has {} bytes, too few for a safetensors file", bytes.size());
  const auto length = detail::little_endian(bytes.substr(0, prefix));
  if (length > max_safetensors_header || length > bytes.size() - prefix)
    throw safetensors_fault("header length: {} in a file of {} bytes; at most {} are allowed", length,
                            bytes.size(), max_safetensors_header);
  const auto text = bytes.substr(prefix, length);
  if (!text.starts_with('{')) throw safetensors_fault("header: it must begin with '{{'");
  // The parser treats a NUL as the end.
  if (const auto nul = text.find('\0'); nul != text.npos)
    throw safetensors_fault("header: it isn't JSON in UTF-8, at byte {}", nul + 1);

  SafeTensorsHeader header;
  header.data_begin = prefix + length;
  const std::uint64_t data_size = file.size() - header.data_begin;
  detail::SafeTensorsHeaderReader reader(header, data_size);
  detail::parse_json_events(text, reader);
  std::ranges::sort(header.tensors, {}, [](const auto& entry) { return std::pair(entry.begin, entry.end); });
  std::uint64_t position = 0;
  for (const auto& entry : header.tensors) {
    if (entry.begin != position)
      throw safetensors_fault("tensor '{}': data_offsets begin at {}, but the bytes before end at {}",
                              detail::printable(entry.name), entry.begin, position);
    position = entry.end;
  }
  if (position != data_size) throw safetensors_fault("the tensors end at byte {} of {}", position, data_size);
  return header;
}

std::string safetensors_header_bytes(std::span<const SafeTensorsEntry> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  auto header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string_view> names{"__metadata__"};
  for (const auto& entry : tensors) {
    if (!names.insert(entry.name).second)
      throw detail::safetensors_fault("tensor '{}': the name is duplicate or reserved",
                                      detail::printable(entry.name));
    if (!is_utf8(entry.name))
      throw detail::safetensors_fault("tensor {}: the name must be UTF-8", quoted_utf8(entry.name));
    // Avoids operator[], whose linear search would make this quadratic.
    header.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(
        entry.name, nlohmann::ordered_json{{"dtype", entry.dtype->name},
                                           {"shape", entry.shape},
                                           {"data_offsets", {entry.begin, entry.end}}});
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& error) {
    throw detail::safetensors_fault("the metadata isn't UTF-8: {}", error.what());
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  if (length > max_safetensors_header)
    throw detail::safetensors_fault("the header has {} bytes; at most {} are allowed", length,
                                    max_safetensors_header);
  return detail::little_endian_bytes(length, 8) + text;
}

}  // namespace etude::inline v0
