#include "etude/reflect/enum.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/reflect/nearest.hpp"

namespace etude::inline v0::detail {

void throw_no_enumerator(std::string_view type, std::int64_t value, std::span<const std::string_view> names) {
  throw ArgumentError(
      fmt::format("{} has no value {}: must be one of {}", type, value, fmt::join(names, ", ")));
}

void throw_no_enumerator(std::string_view type, std::string_view name,
                         std::span<const std::string_view> names) {
  throw ArgumentError(fmt::format("'{}' isn't a {}: must be one of {}{}", name, type, fmt::join(names, ", "),
                                  did_you_mean(name, names)));
}

}  // namespace etude::inline v0::detail
