#include "etude/integrations/shared/tracked_name.hpp"

#include <string>
#include <string_view>

namespace etude::inline v0::detail {

std::string tracked_name(std::string_view name) {
  for (const std::string_view use : {"eval", "test"})
    if (name.starts_with(use) && name.substr(use.size()).starts_with('_'))
      return std::string(use) + '/' + std::string(name.substr(use.size() + 1));
  return "train/" + std::string(name);
}

}  // namespace etude::inline v0::detail
