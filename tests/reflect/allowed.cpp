#include "etude/reflect/allowed.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/reflect/command_line.hpp"
#include "etude/reflect/struct.hpp"

namespace reflect_allowed_test {

using namespace etude::allowed;
using Lines = std::vector<std::string>;

constexpr auto nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr auto infinity = std::numeric_limits<double>::infinity();
constexpr std::string_view colours[] = {"red", "green"};

struct Recipe {
  ETUDE_STRUCT(Recipe, (std::int64_t, eggs, "how many" | at_least(1), 2),
               (std::int64_t, minutes, "in the oven" | between(1, 120).or_just(-1), -1),
               (double, salt, "share" | at_least(0).below(1), 0.5), (double, heat, "" | above(0), 1.0),
               (std::optional<double>, sugar, "grams; unset is none" | at_most(100)),
               (double, tilt, "degrees" | finite(), 0.0), (float, milk, "litres, or any number", infinity),
               (std::string, title, "the name" | not_empty(), "cake"),
               (std::vector<std::string>, icing, "colours" | any_of(colours)),
               (std::optional<std::vector<std::string>>, guests, "names" | not_empty()));
};

struct Checked {
  ETUDE_STRUCT(Checked, (double, low, "" | at_least(0), 1.0), (double, high, "" | at_least(0), 2.0));

  Lines faults() const {
    auto lines = etude::field_faults(*this);
    if (!(low < high)) lines.push_back("low is not below high");
    return lines;
  }
};

template <class T>
std::string text_of(const std::vector<std::string>& words) {
  return toy::fault_of<etude::Error>([&] { (void)etude::parse_arguments<T>(words); });
}

TEST_CASE("the allowed values of a field are described in words") {
  CHECK(at_least(0).text() == "at least 0");
  CHECK(above(0.5).text() == "above 0.5");
  CHECK(at_most(3).text() == "at most 3");
  CHECK(below(3).text() == "below 3");
  CHECK(at_least(0).below(1).text() == "at least 0 and below 1");
  CHECK(above(0).at_most(1).text() == "above 0 and at most 1");
  CHECK(between(1, 1e9).text() == "from 1 to 1000000000");
  CHECK(between(1, 8).or_just(-1).text() == "from 1 to 8, or -1");
  CHECK(finite().text() == "finite");
  CHECK(finite().text(true) == "finite");
  CHECK(at_least(0).text(true) == "at least 0 and finite");
  CHECK(between(0, 1).text(true) == "from 0 to 1");
  CHECK(any_of(colours).text() == "one of red, green");
  CHECK(not_empty().text() == "not empty");
  CHECK(etude::Allowed().text() == "");
}

TEST_CASE("bounds are inclusive or exclusive, and a number with bounds is finite") {
  CHECK(at_least(1).allows(1));
  CHECK_FALSE(above(1).allows(1));
  CHECK(between(0, 1).allows(1));
  CHECK_FALSE(at_least(0).below(1).allows(1));
  CHECK(between(1, 5).or_just(-1).allows(-1));
  CHECK_FALSE(between(1, 5).or_just(-1).allows(0));
  for (const auto& range : {at_least(0), above(0), finite(), between(0, 1)})
    for (const double wrong : {nan_value, infinity, -infinity}) CHECK_FALSE(range.allows(wrong));
  CHECK(etude::Allowed().allows(nan_value));
}

TEST_CASE("the fields at fault are listed in the order of definition") {
  CHECK(etude::field_faults(Recipe()) == Lines{});
  CHECK(etude::field_faults(Recipe{.eggs = 0,
                                   .minutes = 121,
                                   .salt = 1,
                                   .heat = infinity,
                                   .sugar = 101,
                                   .tilt = nan_value,
                                   .title = "",
                                   .icing = {"red", "gren"},
                                   .guests = Lines{}}) ==
        Lines{"eggs is 0: must be at least 1", "minutes is 121: must be from 1 to 120, or -1",
              "salt is 1: must be at least 0 and below 1", "heat is inf: must be above 0 and finite",
              "sugar is 101: must be at most 100 and finite, or unset", "tilt is nan: must be finite",
              "title is empty: must not be empty",
              "icing has 'gren': must be one of red, green; did you mean 'green'?",
              "guests is empty: must not be empty, or be unset"});
}

TEST_CASE("the command line checks what the definition allows, and reports a fault once") {
  CHECK(text_of<Recipe>({"--eggs", "0", "--icing", "blue"}) ==
        "eggs is 0: must be at least 1\nicing has 'blue': must be one of red, green");
  CHECK(text_of<Recipe>({"--eggs", "two"}) == "--eggs is 'two': must be a whole number, at least 1");
  CHECK(text_of<Recipe>({"--sugar", "x"}) == "--sugar is 'x': must be a number, at most 100, or none");
  CHECK(text_of<Checked>({"--low", "3", "--high", "-1"}) ==
        "high is -1: must be at least 0 and finite\nlow is not below high");
}

TEST_CASE("help shows the allowed values") {
  const auto help = text_of<Recipe>({"--help"});
  CHECK(help.find("--eggs INT                    how many; at least 1 (default: 2)\n") != help.npos);
  CHECK(help.find("--heat NUMBER                 above 0 (default: 1)\n") != help.npos);
  CHECK(help.find("--icing TEXT ...              colours; one of red, green (default: [])\n") != help.npos);
}

}  // namespace reflect_allowed_test
