#pragma once

#include <string>
#include <vector>

#include "etude/testing/laws/permissions.hpp"
#include "etude/testing/laws/subject.hpp"

namespace etude::inline v0::laws::detail {

/// Returns a line of text for each law that a callback breaks, and where.
std::vector<std::string> broken_laws(const Trial& trial, const Options& options);

}  // namespace etude::inline v0::laws::detail
