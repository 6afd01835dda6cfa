#include "etude/formats/torch_names.hpp"

#include <string_view>
#include <vector>

namespace etude::inline v0::detail {

std::vector<std::string_view> torch_globals() {
  std::vector<std::string_view> names(torch_plain_globals.begin(), torch_plain_globals.end());
  for (const auto& rebuilder : torch_rebuilders) names.push_back(rebuilder.name);
  for (const auto& dtype : torch_dtypes) {
    names.push_back(dtype.python);
    if (!dtype.storage.empty()) names.push_back(dtype.storage);
  }
  return names;
}

}  // namespace etude::inline v0::detail
