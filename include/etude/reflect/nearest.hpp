#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "etude/base/lower_case.hpp"

namespace etude::inline v0 {

/// The number of insertions, deletions, substitutions and swaps of adjacent letters that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

namespace detail {

/// Whether `name` contains `part` as whole words, delimited by underscores.
bool has_words(std::string_view name, std::string_view part);

}  // namespace detail

/// The name that `given` was probably meant to be, ignoring case: the first that begins with it (if it has at
/// least three letters), or else the one with the smallest edit distance, at most a third of the letters, or
/// else the first that contains it as whole words. Empty if there is none.
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
