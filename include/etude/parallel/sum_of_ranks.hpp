#pragma once

#include <c10/util/TypeCast.h>
#include <torch/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace etude::inline v0::detail {

/// Sums `count` elements over all `from`, in their order, into `to` and, unless it is null, into `also_to`.
/// `to` may be one of `from`.
using SumOfRanks = void (*)(std::byte* to, std::byte* also_to, const std::vector<const std::byte*>& from,
                            std::int64_t count);

template <class T, class Accumulator>
void sum_of_ranks(std::byte* to, std::byte* also_to, const std::vector<const std::byte*>& from,
                  std::int64_t count) {
  constexpr std::int64_t block = 64;  // a constant trip count lets compilers vectorize at -O2
  const auto sum = [&](std::int64_t begin, std::int64_t size) {
    std::array<Accumulator, block> total;
    std::array<T, block> result;
    const auto* first = reinterpret_cast<const T*>(from[0]) + begin;
    for (std::int64_t i = 0; i < size; ++i)
      total[static_cast<std::size_t>(i)] = static_cast<Accumulator>(first[i]);
    for (std::size_t rank = 1; rank < from.size(); ++rank) {
      const auto* next = reinterpret_cast<const T*>(from[rank]) + begin;
      for (std::int64_t i = 0; i < size; ++i) {
        auto& element = total[static_cast<std::size_t>(i)];
        element = static_cast<Accumulator>(element + static_cast<Accumulator>(next[i]));
      }
    }
    for (std::int64_t i = 0; i < size; ++i)
      result[static_cast<std::size_t>(i)] = c10::convert<T>(total[static_cast<std::size_t>(i)]);
    const auto bytes = static_cast<std::size_t>(size) * sizeof(T);
    std::memcpy(to + begin * static_cast<std::int64_t>(sizeof(T)), result.data(), bytes);
    if (also_to) std::memcpy(also_to + begin * static_cast<std::int64_t>(sizeof(T)), result.data(), bytes);
  };
  std::int64_t i = 0;
  for (; i + block <= count; i += block) sum(i, block);
  sum(i, count - i);
}

/// The function for a dtype; null if the dtype isn't supported.
SumOfRanks sum_of_ranks_for(c10::ScalarType dtype);

}  // namespace etude::inline v0::detail
