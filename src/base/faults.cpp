#include "etude/base/faults.hpp"

#include <fmt/ranges.h>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

void detail::Faults::check() const {
  if (!lines_.empty()) throw ArgumentError(fmt::format("{}", fmt::join(lines_, "\n")));
}

}  // namespace etude::inline v0
