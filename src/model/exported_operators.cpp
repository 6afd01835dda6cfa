#include "etude/model/exported_operators.hpp"

#include <algorithm>
#include <string_view>

namespace etude::inline v0::detail {

bool is_refused(std::string_view name) {
  if (!name.starts_with("aten::"))
    return std::ranges::find(internal_namespaces, name.substr(0, name.find(':'))) !=
           internal_namespaces.end();
  return std::ranges::any_of(unchecked_operators,
                             [&](std::string_view part) { return name.find(part) != name.npos; });
}

}  // namespace etude::inline v0::detail
