#include "etude/formats/exported_json.hpp"

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/formats/mapped_tensor.hpp"
#include "etude/formats/torch_names.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/reflect/json_parser.hpp"

namespace etude::inline v0::detail {

ExportedJson exported_json(std::string_view text, std::string_view where) {
  try {
    return parse_json(text);
  } catch (const ArgumentError& error) {
    throw exported_fault(where, "it isn't JSON: {}", error.what());
  }
}

const ExportedJson& exported_member(const ExportedJson& object, std::string_view name,
                                    std::string_view where) {
  if (!object.is_object()) throw exported_fault(where, "it isn't an object with {}", name);
  const auto found = object.find(std::string(name));
  if (found == object.end()) throw exported_fault(where, "it has no {}", name);
  return *found;
}

ExportedUnion exported_union(const ExportedJson& object, std::string_view where) {
  if (!object.is_object() || object.size() != 1)
    throw exported_fault(where, "it isn't an object with one member, which says its kind");
  return {object.begin().key(), object.begin().value()};
}

const std::string& exported_text(const ExportedJson& text, std::string_view where) {
  if (!text.is_string()) throw exported_fault(where, "it isn't a string");
  return text.get_ref<const std::string&>();
}

const ExportedJson& exported_list(const ExportedJson& list, std::string_view where) {
  if (!list.is_array()) throw exported_fault(where, "it isn't a list");
  return list;
}

std::int64_t exported_integer(const ExportedJson& number, std::string_view where) {
  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
  if (!number.is_number_integer() || (number.is_number_unsigned() && number.get<std::uint64_t>() > most))
    throw exported_fault(where, "it isn't an integer of 64 bits");
  return number.get<std::int64_t>();
}

torch::ScalarType exported_dtype(const ExportedJson& number, std::string_view where) {
  const auto value = exported_integer(number, where);
  const auto* found = std::ranges::find(torch_dtypes, value, &TorchDtype::exported);
  if (found == torch_dtypes.end()) throw exported_fault(where, "{} isn't the number of a dtype", value);
  if (const auto dtype = scalar_type_named(found->libtorch)) return *dtype;
  throw exported_fault(where, "LibTorch {} has no dtype {}", TORCH_VERSION, found->libtorch);
}

torch::Device exported_device(const ExportedJson& device, std::string_view where) {
  auto text = exported_text(exported_member(device, "type", where), where);
  if (const auto index = device.find("index"); index != device.end() && !index->is_null())
    text += fmt::format(":{}", exported_integer(*index, where));
  try {
    return torch::Device(text);
  } catch (const c10::Error&) {
    throw exported_fault(where, "'{}' isn't a device", printable(text));
  }
}

}  // namespace etude::inline v0::detail
