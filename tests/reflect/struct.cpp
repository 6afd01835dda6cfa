#include "etude/reflect/struct.hpp"

#include <doctest/doctest.h>

#include <boost/hana/adapt_struct.hpp>
#include <boost/hana/at_key.hpp>
#include <boost/hana/define_struct.hpp>
#include <boost/hana/equal.hpp>
#include <boost/hana/length.hpp>
#include <boost/hana/members.hpp>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

namespace hana = boost::hana;

using Scores = std::map<std::string, double>;

struct Plan {
  ETUDE_STRUCT(Plan, (std::string, name, "what it is called", "none, yet"), (int, rounds, "how often"),
               (std::vector<int>, sizes, "of each round", {3, 2, 1}),
               (Scores, scores, "by name", {{"a", 1.5}, {"b", 2}}), (double, rate, "", 0.5));
  bool started = false;
};

struct Point {
  BOOST_HANA_DEFINE_STRUCT(Point, (int, x), (int, y));
};

struct Pair {
  int left = 1, right = 2;
};

struct Plain {
  int x = 0;
};

#define TEN_FIELDS(p)                                                                                 \
  (int, p##0, "", 0), (int, p##1, "", 1), (int, p##2, "", 2), (int, p##3, "", 3), (int, p##4, "", 4), \
      (int, p##5, "", 5), (int, p##6, "", 6), (int, p##7, "", 7), (int, p##8, "", 8), (int, p##9, "", 9)

struct Wide {
  ETUDE_STRUCT(Wide, TEN_FIELDS(a), TEN_FIELDS(b), TEN_FIELDS(c), TEN_FIELDS(d), TEN_FIELDS(e), TEN_FIELDS(f),
               TEN_FIELDS(g), TEN_FIELDS(h), TEN_FIELDS(i), TEN_FIELDS(j), TEN_FIELDS(k), TEN_FIELDS(l),
               TEN_FIELDS(m), TEN_FIELDS(n), TEN_FIELDS(o), TEN_FIELDS(p), TEN_FIELDS(q), TEN_FIELDS(r),
               TEN_FIELDS(s), TEN_FIELDS(t));
};

struct One {
  ETUDE_STRUCT(One, (int, only, "", 7));
};

}  // namespace

BOOST_HANA_ADAPT_STRUCT(Pair, left, right);

TEST_CASE("a default may contain commas, and a member without a default is value-initialised") {
  const Plan plan;
  CHECK(plan.name == "none, yet");
  CHECK(plan.rounds == 0);
  CHECK(plan.sizes == std::vector{3, 2, 1});
  CHECK(plan.scores == Scores{{"a", 1.5}, {"b", 2.0}});
}

TEST_CASE("the struct stays an aggregate with designated initialisers") {
  static_assert(std::is_aggregate_v<Plan>);
  const Plan plan{.name = "x", .sizes = {9}, .started = true};
  CHECK(plan.name == "x");
  CHECK(plan.sizes == std::vector{9});
  CHECK(plan.rate == 0.5);
  CHECK(plan.started);
}

TEST_CASE("for_each_field gives names, documentation and members in the order of definition") {
  Plan plan;
  std::vector<std::pair<std::string, std::string>> seen;
  etude::for_each_field(plan, [&](std::string_view name, std::string_view doc, auto& member) {
    seen.emplace_back(name, doc);
    if constexpr (std::is_same_v<decltype(member), double&>) member = 4;
  });
  CHECK(seen == std::vector<std::pair<std::string, std::string>>{{"name", "what it is called"},
                                                                 {"rounds", "how often"},
                                                                 {"sizes", "of each round"},
                                                                 {"scores", "by name"},
                                                                 {"rate", ""}});
  CHECK(plan.rate == 4);
}

TEST_CASE("for_each_field of a const struct gives const members") {
  const One one;
  etude::for_each_field(one, [](std::string_view, std::string_view, auto& member) {
    static_assert(std::is_same_v<decltype(member), const int&>);
    CHECK(member == 7);
  });
}

TEST_CASE("members beside the macro are not fields") {
  CHECK(etude::field_names<Plan>() ==
        std::vector<std::string_view>{"name", "rounds", "sizes", "scores", "rate"});
}

TEST_CASE("an ETUDE_STRUCT is a Hana Struct like any other") {
  static_assert(hana::Struct<Plan>::value);
  static_assert(decltype(hana::length(hana::accessors<Plan>()))::value == 5);
  Plan plan{.rounds = 3};
  CHECK(hana::at_key(plan, hana::string_c<'r', 'o', 'u', 'n', 'd', 's'>) == 3);
  hana::at_key(plan, hana::string_c<'r', 'a', 't', 'e'>) = 2.5;
  CHECK(plan.rate == 2.5);
  CHECK(hana::front(hana::members(One{})) == 7);
}

TEST_CASE("structs that Hana's own macros define work, without documentation") {
  Point point{1, 2};
  etude::for_each_field(point, [](std::string_view, std::string_view doc, int& member) {
    CHECK(doc.empty());
    member *= 10;
  });
  CHECK(point.x == 10);
  CHECK(point.y == 20);
  CHECK(etude::field_names<Pair>() == std::vector<std::string_view>{"left", "right"});
}

TEST_CASE("a struct may have 200 fields") {
  const auto names = etude::field_names<Wide>();
  REQUIRE(names.size() == 200);
  CHECK(names.front() == "a0");
  CHECK(names.back() == "t9");
  int sum = 0;
  const Wide wide;
  etude::for_each_field(wide, [&](auto, auto, int member) { sum += member; });
  CHECK(sum == 20 * 45);
}

TEST_CASE("only structs with known members are ReflectedStructs") {
  CHECK(etude::ReflectedStruct<Plan>);
  CHECK(etude::ReflectedStruct<const Plan>);
  CHECK(etude::ReflectedStruct<Point>);
  CHECK(etude::ReflectedStruct<Pair>);
  CHECK_FALSE(etude::ReflectedStruct<Plain>);
  CHECK_FALSE(etude::ReflectedStruct<int>);
  CHECK_FALSE(etude::ReflectedStruct<std::string>);
}
