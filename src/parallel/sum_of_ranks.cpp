#include "etude/parallel/sum_of_ranks.hpp"

#include <cstdint>

namespace etude::inline v0::detail {

SumOfRanks sum_of_ranks_for(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return sum_of_ranks<float, float>;
    case c10::ScalarType::Double:
      return sum_of_ranks<double, double>;
    case c10::ScalarType::Half:
      return sum_of_ranks<c10::Half, float>;
    case c10::ScalarType::BFloat16:
      return sum_of_ranks<c10::BFloat16, float>;
    case c10::ScalarType::Byte:
      return sum_of_ranks<std::uint8_t, std::uint8_t>;
    case c10::ScalarType::Char:
      return sum_of_ranks<std::int8_t, std::uint8_t>;
    case c10::ScalarType::Int:
      return sum_of_ranks<std::int32_t, std::uint32_t>;
    case c10::ScalarType::Long:
      return sum_of_ranks<std::int64_t, std::uint64_t>;
    default:
      return nullptr;
  }
}

}  // namespace etude::inline v0::detail
