#pragma once

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/utf8.hpp"
#include "etude/formats/file_dtype.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/reflect/json_parser.hpp"

/// The header of a safetensors file, which describes its data.
namespace etude::inline v0 {

/// The dtypes whose items are whole bytes, in the format's order, narrowest first.
inline constexpr std::array<FileDtype, 19> safetensors_dtypes = {{
    {"BOOL", "Bool", 1},
    {"U8", "Byte", 1},
    {"I8", "Char", 1},
    {"F8_E5M2", "Float8_e5m2", 1},
    {"F8_E4M3", "Float8_e4m3fn", 1},
    {"F8_E8M0", "Float8_e8m0fnu", 1},
    {"F8_E4M3FNUZ", "Float8_e4m3fnuz", 1},
    {"F8_E5M2FNUZ", "Float8_e5m2fnuz", 1},
    {"I16", "Short", 2},
    {"U16", "UInt16", 2},
    {"F16", "Half", 2},
    {"BF16", "BFloat16", 2},
    {"I32", "Int", 4},
    {"U32", "UInt32", 4},
    {"F32", "Float", 4},
    {"C64", "ComplexFloat", 8},
    {"F64", "Double", 8},
    {"I64", "Long", 8},
    {"U64", "UInt64", 8},
}};

struct SafeTensorsEntry {
  std::string name;
  const FileDtype* dtype = nullptr;
  std::vector<std::int64_t> shape;
  /// The range of the tensor's bytes, counted from the end of the header.
  std::uint64_t begin = 0, end = 0;
};

struct SafeTensorsHeader {
  /// In the order of their bytes, contiguous.
  std::vector<SafeTensorsEntry> tensors;
  std::map<std::string, std::string> metadata;
  /// The offset of the tensors' bytes in the file.
  std::uint64_t data_begin = 0;
};

/// The header size limit of the reference implementation.
inline constexpr std::uint64_t max_safetensors_header = 100'000'000;

namespace detail {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

template <class... Args>
CheckpointError safetensors_fault(fmt::format_string<Args...> text, Args&&... args) {
  return CheckpointError(fmt::format(text, std::forward<Args>(args)...));
}

std::string safetensors_dtype_names();

/// Parses a header's JSON token by token and keeps only well-formed entries, so that a malicious one costs no
/// more memory than a few times its own length.
class SafeTensorsHeaderReader final : public nlohmann::ordered_json::json_sax_t {
 public:
  SafeTensorsHeaderReader(SafeTensorsHeader& header, std::uint64_t data_size)
      : header_(header), data_size_(data_size) {}

  bool start_object(std::size_t) override;

  bool end_object() override;

  bool key(std::string& name) override;

  bool start_array(std::size_t) override;

  bool end_array() override;

  bool string(std::string& text) override;

  bool number_unsigned(std::uint64_t number) override;

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

  // Skips a value that isn't needed: allowed in unknown fields of a tensor.
  bool skip() const;

  void start_skipped();

  void finish_tensor();

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

}  // namespace detail

/// Parses and validates the header of a safetensors file with content `file`. Throws CheckpointError with the
/// tensor and the field.
SafeTensorsHeader read_safetensors_header(std::span<const std::byte> file);

/// The start of a safetensors file, up to the tensors' bytes: the header's length and the header, padded for
/// alignment. Throws CheckpointError for names or metadata that the format doesn't support.
std::string safetensors_header_bytes(std::span<const SafeTensorsEntry> tensors,
                                     const std::map<std::string, std::string>& metadata);

namespace detail {

/// True if every byte is 0 or 1, as BOOL requires: reading another value as a bool is undefined behavior in
/// C++.
bool are_bools(std::span<const std::byte> bytes);

}  // namespace detail
}  // namespace etude::inline v0
