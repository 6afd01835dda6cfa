#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace etude::inline v0::detail {

std::string in_thousands(std::int64_t number);

/// Formats rows with equal numbers of cells as text, with rules below the first and the last row. The first
/// `left` columns are flush left, the others flush right.
std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left);

}  // namespace etude::inline v0::detail
