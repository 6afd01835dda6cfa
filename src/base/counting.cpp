#include "etude/base/counting.hpp"

#include <cmath>

namespace etude::inline v0::detail {

double share_rounded_down(double share, double total, double divisor) {
  double whole = std::floor(share * total / divisor);
  if (!(whole < largest_whole)) return whole;
  while (whole * divisor / total > share) --whole;
  while ((whole + 1) * divisor / total <= share) ++whole;
  return whole;
}

double share_rounded_up(double share, double total) {
  double whole = std::ceil(share * total);
  if (!(whole < largest_whole)) return whole;
  while (whole > 0 && (whole - 1) / total >= share) --whole;
  while (whole / total < share) ++whole;
  return whole;
}

}  // namespace etude::inline v0::detail
