#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "etude/reflect/struct.hpp"

namespace etude::inline v0::detail {

/// Throws an ArgumentError that lists `faults`, one per line, each after `prefix`, unless there are none.
void throw_faults(std::vector<std::string> faults, std::string_view prefix = "");

/// Throws an ArgumentError that lists every member outside its allowed values.
template <ReflectedStruct T>
void check_fields(const T& object, std::string_view prefix = "") {
  throw_faults(field_faults(object), prefix);
}

}  // namespace etude::inline v0::detail
