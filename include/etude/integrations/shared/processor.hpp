#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace etude::inline v0::detail {

/// The values of all lines "name : value" with this name, as in the files of /proc.
std::vector<std::string> values_in(std::string_view text, std::string_view name);

struct ProcessorInfo {
  std::string model;         ///< As the system names it; may be empty.
  std::int64_t sockets = 1;  ///< At least 1.
};
/// Parses /proc/cpuinfo.
ProcessorInfo processor_info(std::string_view cpuinfo);
ProcessorInfo read_processor_info();

}  // namespace etude::inline v0::detail
