#include "etude/reflect/check_fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"

namespace etude::inline v0::detail {

void throw_faults(std::vector<std::string> faults, std::string_view prefix) {
  if (faults.empty()) return;
  for (auto& fault : faults) fault.insert(0, prefix);
  throw ArgumentError(fmt::format("{}", fmt::join(faults, "\n")));
}

}  // namespace etude::inline v0::detail
