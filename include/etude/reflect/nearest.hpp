#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/lower_case.hpp"

namespace etude::inline v0 {

/// The number of insertions, deletions, substitutions and swaps of adjacent letters that turn `a` into `b`.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
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

namespace detail {

/// Whether `name` contains `part` as whole words, delimited by underscores.
inline bool has_words(std::string_view name, std::string_view part) {
  const auto at = name.find(part);
  return at != name.npos && (at == 0 || name[at - 1] == '_') &&
         (at + part.size() == name.size() || name[at + part.size()] == '_');
}

}  // namespace detail

/// The name that `given` was probably meant to be, ignoring case: the first that begins with it (from three
/// letters on), else the one with the smallest edit distance, at most a third of the letters, else the first
/// that contains it as whole words. Empty if there is none.
template <class Names>
std::string_view nearest(std::string_view given, const Names& names) {
  const auto wrong = detail::lower_case(given);
  std::string_view best;
  std::size_t least = std::max<std::size_t>(1, wrong.size() / 3) + 1;
  for (std::string_view name : names) {
    if (wrong.size() >= 3 && detail::lower_case(name).starts_with(wrong)) return name;
    if (const auto distance = edit_distance(wrong, detail::lower_case(name)); distance < least) {
      least = distance;
      best = name;
    }
  }
  if (!best.empty() || wrong.size() < 3) return best;
  for (std::string_view name : names)
    if (detail::has_words(detail::lower_case(name), wrong)) return name;
  return best;
}

/// "; did you mean 'x'?", or nothing if no name is close.
template <class Names>
std::string did_you_mean(std::string_view wrong, const Names& names, std::string_view prefix = {}) {
  const auto name = nearest(wrong, names);
  return name.empty() ? std::string() : "; did you mean '" + std::string(prefix) + std::string(name) + "'?";
}

}  // namespace etude::inline v0
