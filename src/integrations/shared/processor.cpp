#include "etude/integrations/shared/processor.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include "etude/base/read_file.hpp"

namespace etude::inline v0::detail {

std::vector<std::string> values_in(std::string_view text, std::string_view name) {
  std::vector<std::string> values;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (colon == line.npos) continue;
    const auto end = line.find_last_not_of(" \t", colon == 0 ? 0 : colon - 1);
    if (end == line.npos || std::string_view(line).substr(0, end + 1) != name) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    values.push_back(begin == line.npos ? "" : line.substr(begin));
  }
  return values;
}

ProcessorInfo processor_info(std::string_view cpuinfo) {
  ProcessorInfo info;
  for (const std::string_view name : {"model name", "cpu model", "cpu", "Hardware"})
    if (const auto found = values_in(cpuinfo, name); info.model.empty() && !found.empty())
      info.model = found.front();
  const auto ids = values_in(cpuinfo, "physical id");
  info.sockets = std::max<std::int64_t>(std::ssize(std::set(ids.begin(), ids.end())), 1);
  return info;
}

ProcessorInfo read_processor_info() { return processor_info(read_file("/proc/cpuinfo").value_or("")); }

}  // namespace etude::inline v0::detail
