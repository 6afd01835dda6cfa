#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "etude/base/error.hpp"

/// Access to the JSON of a `.pt2` file, which torch/_export/serde/schema.py describes. The JSON isn't
/// trusted: these functions throw a CheckpointError that begins with `where` if it isn't of the expected
/// kind.
namespace etude::inline v0::detail {

using ExportedJson = nlohmann::ordered_json;

/// A JSON object with a single member, whose name says how to read its value.
struct ExportedUnion {
  std::string_view kind;
  const ExportedJson& value;
};

template <class... Args>
CheckpointError exported_fault(std::string_view where, fmt::format_string<Args...> text, Args&&... args) {
  return CheckpointError(fmt::format("{}: {}", where, fmt::format(text, std::forward<Args>(args)...)));
}

ExportedJson exported_json(std::string_view text, std::string_view where);
const ExportedJson& exported_member(const ExportedJson& object, std::string_view name,
                                    std::string_view where);
ExportedUnion exported_union(const ExportedJson& object, std::string_view where);
const std::string& exported_text(const ExportedJson& text, std::string_view where);
const ExportedJson& exported_list(const ExportedJson& list, std::string_view where);
std::int64_t exported_integer(const ExportedJson& number, std::string_view where);
torch::ScalarType exported_dtype(const ExportedJson& number, std::string_view where);
torch::Device exported_device(const ExportedJson& device, std::string_view where);

}  // namespace etude::inline v0::detail
