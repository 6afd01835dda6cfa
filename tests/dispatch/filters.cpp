#include "etude/dispatch/filters.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "etude/base/error.hpp"
#include "etude/dispatch/callback_handler.hpp"

namespace dispatch_filters_test {

struct Step {
  int number;
};

/// The events, from 1 to 30, at which the filter calls its function.
template <class Filter>
std::vector<int> fired(const Filter& filter) {
  std::vector<int> numbers;
  etude::CallbackHandler handler{filter.call([&](const Step& e) { numbers.push_back(e.number); })};
  for (int n = 1; n <= 30; ++n) handler.call_event(Step{n});
  return numbers;
}

TEST_CASE("every(k) alone fires at multiples of k") {
  CHECK(fired(etude::on<Step>().every(10)) == std::vector<int>{10, 20, 30});
}

TEST_CASE("every, after and before behave as in PyTorch-Ignite") {
  // The example in Ignite's documentation: every=5, after=8, before=25.
  CHECK(fired(etude::on<Step>().every(5).after(8).before(25)) == std::vector<int>{9, 14, 19, 24});
}

TEST_CASE("after and before alone exclude the bounds") {
  CHECK(fired(etude::on<Step>().after(27)) == std::vector<int>{28, 29, 30});
  CHECK(fired(etude::on<Step>().before(4)) == std::vector<int>{1, 2, 3});
}

TEST_CASE("once fires once") {
  CHECK(fired(etude::on<Step>().once()) == std::vector<int>{1});
  CHECK(fired(etude::on<Step>().once(7)) == std::vector<int>{7});
}

TEST_CASE("predicates combine with counts and with each other") {
  const auto even = [](const Step& e) { return e.number % 2 == 0; };
  const auto beyond_20 = [](const Step& e) { return e.number > 20; };
  CHECK(fired(etude::on<Step>().every(3).when(even).when(beyond_20)) == std::vector<int>{24, 30});
}

TEST_CASE("a function that takes Event& is a writer") {
  etude::CallbackHandler handler{etude::on<Step>().call([](Step& e) { ++e.number; })};
  Step step{1};
  handler.call_event(step);
  CHECK(step.number == 2);
  using Reader = decltype(etude::on<Step>().call([](const Step&) {}));
  using Writer = decltype(etude::on<Step>().call([](Step&) {}));
  CHECK_FALSE(etude::Writes<Reader, Step>);
  CHECK(etude::Writes<Writer, Step>);
}

TEST_CASE("counts that exclude each other are refused, in any order") {
  const auto nothing = [](const Step&) {};
  CHECK_THROWS_WITH_AS(
      static_cast<void>(etude::on<Step>().every(2).once().call(nothing)),
      "every(2).once(1): no occurrence meets all of these conditions, so it would never be called",
      etude::ArgumentError);
  CHECK_THROWS_AS(static_cast<void>(etude::on<Step>().once().every(2).call(nothing)), etude::ArgumentError);
  CHECK_THROWS_AS(static_cast<void>(etude::on<Step>().after(3).before(2).call(nothing)),
                  etude::ArgumentError);
  CHECK_THROWS_AS(static_cast<void>(etude::on<Step>().after(3).before(4).call(nothing)),
                  etude::ArgumentError);
  CHECK_THROWS_AS(static_cast<void>(etude::on<Step>().every(4).before(4).call(nothing)),
                  etude::ArgumentError);
  CHECK_THROWS_AS(static_cast<void>(etude::on<Step>().before(1).call(nothing)), etude::ArgumentError);
  CHECK_THROWS_AS(static_cast<void>(etude::on<Step>().after(-1)), etude::ArgumentError);
  CHECK(fired(etude::on<Step>().after(3).before(5)) == std::vector<int>{4});
  CHECK(fired(etude::on<Step>().every(4).before(5)) == std::vector<int>{4});
  // An unfinished chain may admit no event at all.
  CHECK(fired(etude::on<Step>().every(2).once(5).after(4)) == std::vector<int>{5});
}

TEST_CASE("every(0) is refused") {
  CHECK_THROWS_AS(static_cast<void>(etude::on<Step>().every(0)), etude::ArgumentError);
}

}  // namespace dispatch_filters_test
