#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/linkage.hpp"

namespace etude::detail {

/// The value behind the name in a line "name : value", as files of /proc have them, and in each further one
/// of that name.
std::vector<std::string> values_in(std::string_view text, std::string_view name);

struct ProcessorFacts {
  std::string model;         ///< As the system calls it; may be empty.
  std::int64_t sockets = 1;  ///< At least 1.
};
/// /proc/cpuinfo.
ProcessorFacts processor_facts(std::string_view cpuinfo);
ProcessorFacts read_processor_facts();

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/shared/impl/processor.ipp"
#endif
