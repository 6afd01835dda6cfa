#include "etude/base/number_text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace etude::inline v0::detail {

std::string number_text(double value, int digits) {
  if (value == std::round(value) && std::abs(value) < 1e6) return fmt::format("{:.0f}", value + 0.0);
  return fmt::format("{:.{}g}", value, digits);
}

std::string duration_text(double seconds) {
  if (seconds < 0.0005) return seconds == 0 ? "0 ms" : "< 1 ms";
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  if (seconds > 1e12) return number_text(seconds / 86400, 3) + " d";
  const auto whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {:02} h", whole / 86400, whole % 86400 / 3600);
}

}  // namespace etude::inline v0::detail
