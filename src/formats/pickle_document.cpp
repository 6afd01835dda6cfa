#include "etude/formats/pickle_document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

namespace etude::inline v0::pickle {

std::span<const Id> children(const Value& value) {
  return std::visit(
      [](const auto& v) -> std::span<const Id> {
        if constexpr (requires { v.items; }) return v.items;
        if constexpr (requires { v.function_and_arguments; }) return v.function_and_arguments;
        if constexpr (requires { v.id; }) return v.id;
        return {};
      },
      value);
}

void check_nesting(const Document& document, std::string_view source) {
  enum : unsigned char { unseen = 0, open = 255 };
  static_assert(Document::max_depth < open);
  std::vector<unsigned char> heights(document.values.size(), unseen);
  struct Entered {
    Id id;
    std::size_t next_child;
    unsigned char height;
  };
  std::vector<Entered> path;
  const auto enter = [&](Id id) {
    path.push_back({id, 0, 1});
    heights[id] = open;
  };
  enter(document.root);
  while (!path.empty()) {
    auto& current = path.back();
    if (current.height > Document::max_depth || path.size() > Document::max_depth) {
      throw CheckpointError(
          fmt::format("{}: the pickle is nested deeper than {}", source, Document::max_depth));
    }
    const auto held = children(document[current.id]);
    if (current.next_child == held.size()) {
      heights[current.id] = current.height;
      path.pop_back();
      // The parent visits this child again and finds its height.
      continue;
    }
    const auto child = held[current.next_child];
    if (heights[child] == open) {
      throw CheckpointError(fmt::format("{}: a value of the pickle contains itself", source));
    }
    if (heights[child] == unseen) {
      enter(child);
      continue;
    }
    current.height = std::max(current.height, static_cast<unsigned char>(heights[child] + 1));
    ++current.next_child;
  }
}

}  // namespace etude::inline v0::pickle
