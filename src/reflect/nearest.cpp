#include "etude/reflect/nearest.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string_view>
#include <vector>

namespace etude::inline v0 {

// Optimal string alignment (restricted Damerau-Levenshtein distance), with three rows of its table.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace etude::inline v0

namespace etude::inline v0::detail {

bool has_words(std::string_view name, std::string_view part) {
  const auto at = name.find(part);
  return at != name.npos && (at == 0 || name[at - 1] == '_') &&
         (at + part.size() == name.size() || name[at + part.size()] == '_');
}

}  // namespace etude::inline v0::detail
