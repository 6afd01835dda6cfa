#include "etude/integrations/shared/ini.hpp"

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"

namespace integrations_shared_ini_test {

using etude::detail::IniSections;
using etude::detail::parse_ini;
using Values = std::map<std::string, std::string>;

std::string fault_of(const std::string& text) {
  return toy::fault_of<etude::ArgumentError>([&] { parse_ini(text, "a.ini"); });
}

TEST_CASE("an INI file is read as Python's configparser reads it") {
  const auto sections = parse_ini(
      "project_name = not ours\n[other]\npue = 9\n[codecarbon]\r\n"
      "# a comment\n; another\nProject_Name = my run \nwue:0.5\nregion =\n"
      "gpu_ids = 0,\n  1\nodd = a = b\n[more]\npue = 8\npue = 7",
      "a.ini");
  CHECK(sections == IniSections{{"", {{"project_name", "not ours"}}},
                                {"other", {{"pue", "9"}}},
                                {"codecarbon",
                                 {{"project_name", "my run"},
                                  {"wue", "0.5"},
                                  {"region", ""},
                                  {"gpu_ids", "0,\n1"},
                                  {"odd", "a = b"}}},
                                {"more", {{"pue", "7"}}}});
}

TEST_CASE("options that are all indented equally don't continue each other") {
  CHECK(parse_ini("[comet]\n  api_key = k\n  workspace = w\n    and v\n", "a.ini").at("comet") ==
        Values{{"api_key", "k"}, {"workspace", "w\nand v"}});
}

TEST_CASE("an invalid line of an INI file is an error with its position") {
  CHECK(fault_of("[a]\n\nno value\n") == "a.ini can't be read: line 3 must be [section] or name = value");
  CHECK(fault_of("= value") == "a.ini can't be read: line 1 must be [section] or name = value");
  CHECK(fault_of("[a\n") == "a.ini can't be read: line 1 must be [section] or name = value");
  CHECK(fault_of("") == "nothing was thrown");
}

TEST_CASE("a missing file has no sections") {
  const toy::Folder folder;
  CHECK(etude::detail::read_ini(folder / "none").empty());
  toy::write_text(folder / "some", "[a]\nb=c\n");
  CHECK(etude::detail::read_ini(folder / "some").at("a") == Values{{"b", "c"}});
}

}  // namespace integrations_shared_ini_test
