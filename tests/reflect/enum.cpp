#include "etude/reflect/enum.hpp"
#include "etude/base/error.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "common/fault_of.hpp"

namespace reflect_enum_test {

using toy::fault_of;

ETUDE_ENUM(Fruit, apple, pear, plum);

enum class Unnamed { one };

TEST_CASE("an ETUDE_ENUM knows its names") {
  CHECK(etude::to_string(Fruit::pear) == "pear");
  CHECK(etude::from_string<Fruit>("plum") == Fruit::plum);
  CHECK(etude::enum_names<Fruit>.size() == 3);
  static_assert(etude::to_string(Fruit::apple) == "apple");
  static_assert(static_cast<int>(Fruit::plum) == 2);
}

TEST_CASE("the error about an unknown name lists all names and the nearest") {
  CHECK(fault_of<etude::ArgumentError>([] { (void)etude::from_string<Fruit>("plumm"); }) ==
        "'plumm' isn't a Fruit: must be one of apple, pear, plum; did you mean 'plum'?");
  CHECK(fault_of<etude::ArgumentError>([] { (void)etude::from_string<Fruit>(""); }) ==
        "'' isn't a Fruit: must be one of apple, pear, plum");
  CHECK(fault_of<etude::ArgumentError>([] { (void)etude::from_string<Fruit>("Apple pie"); }) ==
        "'Apple pie' isn't a Fruit: must be one of apple, pear, plum");
}

TEST_CASE("a number that isn't an enumerator is an error") {
  CHECK(fault_of<etude::ArgumentError>([] { (void)etude::to_string(static_cast<Fruit>(7)); }) ==
        "Fruit has no value 7: must be one of apple, pear, plum");
  CHECK(fault_of<etude::ArgumentError>([] { (void)etude::to_string(static_cast<Fruit>(-1)); }) ==
        "Fruit has no value -1: must be one of apple, pear, plum");
}

TEST_CASE("an ETUDE_ENUM is formatted by name") {
  CHECK(fmt::format("{}", Fruit::apple) == "apple");
  CHECK(fmt::format("[{:>6}]", Fruit::pear) == "[  pear]");
}

TEST_CASE("only enums of ETUDE_ENUM are ReflectedEnums") {
  CHECK(etude::ReflectedEnum<Fruit>);
  CHECK_FALSE(etude::ReflectedEnum<Unnamed>);
  CHECK_FALSE(etude::ReflectedEnum<int>);
}

}  // namespace reflect_enum_test
