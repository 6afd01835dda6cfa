#pragma once

#include <string>

/// Numbers and durations as people read them. The input may come from untrusted files, so these
/// functions accept any number.
namespace etude::inline v0::detail {

/// A number with at most `digits` significant digits; whole numbers below a million are written in full.
std::string number_text(double value, int digits = 6);

/// A duration: "< 1 ms", "35 ms", "1.2 s", "4 min 05 s", "2 h 13 min", "3 d 04 h".
std::string duration_text(double seconds);

}  // namespace etude::inline v0::detail
