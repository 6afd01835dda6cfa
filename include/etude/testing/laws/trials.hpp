#pragma once

#include <string>
#include <vector>

#include "etude/testing/laws/permissions.hpp"
#include "etude/testing/laws/subject.hpp"

namespace etude::inline v0::laws::detail {

/// The laws that a callback breaks, as text.
std::vector<std::string> broken_laws(const Trial& trial, const Options& options);

}  // namespace etude::inline v0::laws::detail
