#include "etude/data/shuffle.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <vector>

namespace data_shuffle_test {

using etude::detail::KeyedPermutation;
using etude::detail::mix;
using Order = std::vector<std::int64_t>;

Order order_of(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  const KeyedPermutation permutation(size, seed, epoch);
  Order order(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = permutation[static_cast<std::int64_t>(i)];
  return order;
}

Order sorted(Order order) {
  std::ranges::sort(order);
  return order;
}

// How many standard deviations the counts differ from equal counts, by Pearson's test.
double deviation(const std::vector<double>& counts, double freedom) {
  const double expected =
      std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(counts.size());
  double sum = 0;
  for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
  return (sum - freedom) / std::sqrt(2 * freedom);
}

TEST_CASE("a seed and an epoch give the same keyed order everywhere and forever") {
  // Computed in Python from the definition.
  CHECK(order_of(8, 42, 0) == Order{5, 0, 1, 2, 6, 3, 4, 7});
  CHECK(order_of(12, 42, 0) == Order{5, 8, 1, 2, 9, 3, 4, 7, 0, 10, 11, 6});
  CHECK(order_of(12, 42, 1) == Order{7, 6, 9, 11, 0, 5, 10, 4, 8, 2, 3, 1});
  const auto many = order_of(300, ~std::uint64_t{0}, 5);
  CHECK(Order(many.begin(), many.begin() + 6) == Order{100, 119, 151, 232, 105, 63});
  CHECK(order_of(1, 42, 0) == Order{0});
  const auto most = std::int64_t{1} << 62;
  const KeyedPermutation huge(most, 42, 0);
  CHECK(huge[0] == 1156285948503563621);
  CHECK(huge[1] == 2103619274972368494);
  CHECK(huge[most - 1] == 1853118932856447575);
}

TEST_CASE("every number comes once, for any size") {
  for (std::int64_t size = 1; size <= 1200; size += size < 300 ? 1 : 37) {
    Order numbers(static_cast<std::size_t>(size));
    std::iota(numbers.begin(), numbers.end(), 0);
    CAPTURE(size);
    CHECK(sorted(order_of(size, 1, size)) == numbers);
  }
  Order numbers(65'537);
  std::iota(numbers.begin(), numbers.end(), 0);
  CHECK(sorted(order_of(65'537, 7, 3)) == numbers);
}

// The inverse permutation: undoes the rounds from the last to the first.
std::int64_t place_of(std::int64_t number, std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  const auto count = static_cast<std::uint64_t>(size);
  const auto rows = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(size)));
  const auto columns = (count + rows - 1) / rows;
  const auto key = mix(mix(seed, 3), static_cast<std::uint64_t>(epoch));
  const auto draw = [&](std::uint64_t round, std::uint64_t of, std::uint64_t side) {
    return (mix(mix(key, round), of) >> 32) * side >> 32;
  };
  auto place = static_cast<std::uint64_t>(number);
  do {
    auto row = place / columns, column = place % columns;
    for (std::uint64_t round = 8; round > 0; round -= 2) {
      column = (column + columns - draw(round - 1, row, columns)) % columns;
      row = (row + rows - draw(round - 2, column, rows)) % rows;
    }
    place = row * columns + column;
  } while (place >= count);
  return static_cast<std::int64_t>(place);
}

TEST_CASE("for sizes too large to list, each position has its own number, which maps back to it") {
  const auto most = std::int64_t{1} << 62;
  for (const auto size :
       {std::int64_t{1} << 31, (std::int64_t{1} << 53) + 1, most - 12'345, most - 1, most}) {
    CAPTURE(size);
    const KeyedPermutation permutation(size, 3, 9);
    std::set<std::int64_t> numbers;
    int low = 0, wrong = 0;
    for (std::int64_t i = 0; i < 2000; ++i) {
      const auto place = i < 1000 ? i : size - i + 999;
      const auto number = permutation[place];
      numbers.insert(number);
      low += number < size / 2;
      wrong += number < 0 || number >= size || place_of(number, size, 3, 9) != place;
    }
    CHECK(wrong == 0);
    CHECK(numbers.size() == 2000);
    CHECK(std::abs(low - 1000) < 5 * 23);  // a standard deviation of 22.4
  }
}

TEST_CASE("all orders of a few numbers are about equally frequent") {
  for (const std::int64_t size : {2, 3, 4, 5}) {
    std::map<Order, double> counts;
    for (std::int64_t epoch = 0; epoch < 100; ++epoch)
      for (std::uint64_t seed = 0; seed < 60; ++seed) ++counts[order_of(size, seed, epoch)];
    std::vector<double> numbers;
    for (const auto& [order, count] : counts) numbers.push_back(count);
    CAPTURE(size);
    const std::size_t orders[] = {2, 6, 24, 120};
    REQUIRE(numbers.size() == orders[size - 2]);
    CHECK(deviation(numbers, static_cast<double>(numbers.size() - 1)) < 5);
  }
}

TEST_CASE("every number is about equally frequent at each position, and neighbours are independent") {
  constexpr std::int64_t size = 1000, cell = 50;
  std::vector<double> cells(400), differences(size - 1);
  for (std::int64_t epoch = 0; epoch < 400; ++epoch) {
    const auto order = order_of(size, 11, epoch);
    for (std::int64_t i = 0; i < size; ++i)
      ++cells[static_cast<std::size_t>(i / cell * 20 + order[static_cast<std::size_t>(i)] / cell)];
    for (std::size_t i = 0; i < order.size(); i += 2)
      ++differences[static_cast<std::size_t>((order[i + 1] - order[i] + size) % size - 1)];
  }
  CHECK(deviation(cells, 19 * 19) < 5);
  CHECK(deviation(differences, size - 2) < 5);
}

TEST_CASE("one epoch's order is independent of the next one's") {
  int same = 0;
  for (std::int64_t epoch = 0; epoch < 1000; ++epoch) {
    const auto order = order_of(100, 5, epoch), next = order_of(100, 5, epoch + 1);
    for (std::size_t i = 0; i < order.size(); ++i) same += order[i] == next[i];
  }
  CHECK(std::abs(same - 1000) < 5 * 32);  // 1 match is expected in each pair of orders, with a variance of 1
}

}  // namespace data_shuffle_test
