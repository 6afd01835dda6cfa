#include "etude/reflect/interval.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/command_line.hpp"
#include "etude/reflect/json.hpp"

namespace reflect_interval_test {

using etude::Interval;
using etude::IntervalUnit;

TEST_CASE("an interval is read with its unit and printed in a form that can be read again") {
  struct Row {
    const char* text;
    double value;
    IntervalUnit unit;
    const char* printed;
  };
  const std::vector<Row> rows{{"1ep", 1, IntervalUnit::epochs, "1ep"},
                              {"0.5ep", 0.5, IntervalUnit::epochs, "0.5ep"},
                              {"100ba", 100, IntervalUnit::steps, "100"},
                              {"500", 500, IntervalUnit::steps, "500"},
                              {"1", 1, IntervalUnit::steps, "1"},
                              {"1e3", 1000, IntervalUnit::steps, "1000"},
                              {"0.25", 0.25, IntervalUnit::share, "0.25"},
                              {"0.25dur", 0.25, IntervalUnit::share, "0.25"},
                              {"1dur", 1, IntervalUnit::share, "1dur"},
                              {"0.5ba", 0.5, IntervalUnit::steps, "0.5ba"},
                              {"1000sp", 1000, IntervalUnit::samples, "1000sp"},
                              {"3e4tok", 30000, IntervalUnit::tokens, "30000tok"},
                              {"30s", 30, IntervalUnit::seconds, "30s"},
                              {"90sec", 90, IntervalUnit::seconds, "1m30s"},
                              {"5min", 300, IntervalUnit::seconds, "5m"},
                              {"2h", 7200, IntervalUnit::seconds, "2h"},
                              {"1h30m", 5400, IntervalUnit::seconds, "1h30m"},
                              {"1d12h", 129600, IntervalUnit::seconds, "1d12h"},
                              {"250ms", 0.25, IntervalUnit::seconds, "0.25s"},
                              {" 1ep ", 1, IntervalUnit::epochs, "1ep"},
                              {"+1ep", 1, IntervalUnit::epochs, "1ep"},
                              {"1e1ep", 10, IntervalUnit::epochs, "10ep"},
                              {"1_000", 1000, IntervalUnit::steps, "1000"},
                              {"1_000sp", 1000, IntervalUnit::samples, "1000sp"}};
  for (const auto& row : rows) {
    CAPTURE(row.text);
    const Interval interval(row.text);
    CHECK(interval.value() == row.value);
    CHECK(interval.unit() == row.unit);
    CHECK(interval.text() == row.printed);
    CHECK(Interval(interval.text()) == interval);
    CHECK(fmt::format("{}", interval) == row.printed);
  }
  CHECK(Interval(5) == Interval("5ba"));
  CHECK(Interval(0.1) == Interval("0.1dur"));
  CHECK(Interval(1.0) == Interval(1));
}

TEST_CASE("the error about an invalid interval says what is allowed") {
  for (const char* text : {"", "ep", "1 ep", "1epoch", "5 parsecs", "30m1h", "1h1h", "1h-5m", "1ep1h", "1h5",
                           "1e999s", "s30", "infep", "nan", "1__0sp", "+-1ep"}) {
    CAPTURE(text);
    CHECK_FALSE(Interval::from_text(text).has_value());
    CHECK_THROWS_WITH_AS(
        Interval{text},
        fmt::format("the interval is '{}': must be a number of update steps, below 1 a fraction of all, or a "
                    "number with a unit: ep (epochs), ba (update steps), sp (samples), tok (tokens), dur "
                    "(fraction of all steps), or a time in d, h, min, s as 30s or 1h30m",
                    text)
            .c_str(),
        etude::ArgumentError);
  }
}

TEST_CASE("only positive intervals are valid") {
  for (const Interval& good :
       {Interval(1), Interval((std::int64_t{1} << 53) - 1), Interval(0.5), Interval("1dur"),
        Interval("0.01ep"), Interval("1sp"), Interval("0.5s"), Interval("2ep")})
    CHECK_MESSAGE(good.is_valid(), good.text());
  for (const Interval& bad : {Interval(), Interval(0), Interval(-1), Interval(2.5), Interval("0.5ba"),
                              Interval("1.5dur"), Interval((std::int64_t{1} << 53) + 1), Interval("0ep"),
                              Interval("-5s"), Interval(1e300), Interval(std::nan(""))})
    CHECK_MESSAGE(!bad.is_valid(), bad.text());
  CHECK(Interval(50).steps(1000) == 50);
  CHECK(Interval(0.1).steps(1001) == 101);
  CHECK(Interval("1dur").steps(77) == 77);
  CHECK(Interval("1ep").steps(1000) == 0);
  CHECK(Interval(-3).steps(1000) == 0);
}

struct Options {
  ETUDE_STRUCT(Options, (Interval, every, "how often", Interval("1ep")),
               (std::optional<Interval>, other, "how often else"), (std::vector<Interval>, all, "several"));
};

TEST_CASE("a field of a struct is a number of steps or text in JSON") {
  Options options{.every = 500, .other = "1h30m", .all = {0.5, "3sp"}};
  const auto json = etude::to_json_value(options);
  CHECK(json.dump() == R"({"every":500.0,"other":"1h30m","all":[0.5,"3sp"]})");
  const auto back = etude::from_json_value<Options>(json);
  CHECK(back.every == options.every);
  CHECK(back.other == options.other);
  CHECK(back.all == options.all);
  CHECK(etude::from_json_text<Options>(R"({"every": 7, "other": null})").every == Interval(7));
  CHECK_THROWS_WITH_AS(etude::from_json_text<Options>(R"({"every": "soon", "all": [1, true]})"),
                       doctest::Contains("every is \"soon\": must be a number of update steps, below 1"),
                       etude::ArgumentError);
  CHECK_THROWS_WITH_AS(etude::from_json_text<Options>(R"({"all": [1, true]})"),
                       doctest::Contains("all[1] is true: must be a number of update steps, below 1"),
                       etude::ArgumentError);
}

TEST_CASE("a field of a struct can be set on the command line, with its help") {
  const auto options =
      etude::parse_arguments<Options>({"--every", "30s", "--other=0.25dur", "--all", "1ep", "10,2h"});
  CHECK(options.every == Interval("30s"));
  CHECK(options.other == Interval(0.25));
  CHECK(options.all == std::vector<Interval>{"1ep", 10, "2h"});
  CHECK_FALSE(etude::parse_arguments<Options>({"--other", "none"}).other);
  CHECK_THROWS_WITH_AS(etude::parse_arguments<Options>({"--every", "30 parsecs"}),
                       doctest::Contains("must be a number of update steps, below 1 a fraction of all, or a "
                                         "number with a unit"),
                       etude::ArgumentError);
  CHECK_THROWS_WITH_AS(etude::parse_arguments<Options>({"--help"}), doctest::Contains("--every INTERVAL"),
                       etude::HelpRequested);
  CHECK_THROWS_WITH_AS(etude::parse_arguments<Options>({"--help"}), doctest::Contains("1ep"),
                       etude::HelpRequested);
}

}  // namespace reflect_interval_test
