#include "etude/reflect/key_values.hpp"
#include "etude/base/error.hpp"

#include <doctest/doctest.h>

namespace reflect_key_values_test {

using nlohmann::json;

TEST_CASE("name=value pairs become numbers, bools and strings") {
  CHECK(etude::parse_key_values(
            "num_cycles=0.5, decay_type=cosine,power=2,big=1e-7,on=true,off=false,empty=,minus=-3") ==
        json{{"num_cycles", 0.5},
             {"decay_type", "cosine"},
             {"power", 2},
             {"big", 1e-7},
             {"on", true},
             {"off", false},
             {"empty", ""},
             {"minus", -3}});
  CHECK(etude::parse_key_values("power=2")["power"].is_number_integer());
  CHECK(etude::parse_key_values("power=2.0")["power"].is_number_float());
  CHECK(etude::parse_key_values("expression=a=b") == json{{"expression", "a=b"}});
  CHECK(etude::parse_key_values("") == json::object());
}

TEST_CASE("blanks around a value don't belong to it, and digits may be grouped") {
  CHECK(etude::parse_key_values("a = 0.5 , b= cosine ,c=1_000, d=-1e-400") ==
        json{{"a", 0.5}, {"b", "cosine"}, {"c", 1000}, {"d", 0.0}});
  CHECK(etude::parse_key_values("c=1_000")["c"].is_number_integer());
  CHECK(etude::parse_key_values("c=1e3")["c"].is_number_float());
  CHECK(etude::parse_key_values("c=1e400")["c"] == "1e400");
  CHECK(etude::parse_key_values("c=1_")["c"] == "1_");
}

TEST_CASE("anything but name=value is an error that quotes it") {
  CHECK_THROWS_WITH_AS(etude::parse_key_values("a=1,b"), "'b' is not name=value", etude::ArgumentError);
  CHECK_THROWS_WITH_AS(etude::parse_key_values("=1"), "'=1' is not name=value", etude::ArgumentError);
  CHECK_THROWS_WITH_AS(etude::parse_key_values(" =1"), "' =1' is not name=value", etude::ArgumentError);
  CHECK_THROWS_WITH_AS(etude::parse_key_values("a=1,,b=2"), "'' is not name=value", etude::ArgumentError);
  CHECK_THROWS_WITH_AS(etude::parse_key_values("a=1,a=2"), "'a' is given twice", etude::ArgumentError);
}

}  // namespace reflect_key_values_test
