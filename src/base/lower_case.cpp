#include "etude/base/lower_case.hpp"

#include <string>
#include <string_view>

namespace etude::inline v0::detail {

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

}  // namespace etude::inline v0::detail
