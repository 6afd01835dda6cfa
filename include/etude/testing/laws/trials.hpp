#pragma once

#include <string>
#include <vector>

#include "etude/testing/laws/options.hpp"
#include "etude/testing/laws/subject.hpp"

namespace etude::laws::detail {

/// What a callback breaks, in words.
std::vector<std::string> broken_laws(const Trial& trial, const Options& options);

}  // namespace etude::laws::detail

#ifndef ETUDE_COMPILED
#include "etude/testing/laws/impl/trials.ipp"
#endif
