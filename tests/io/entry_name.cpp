#include "etude/io/entry_name.hpp"

#include <doctest/doctest.h>

namespace io_entry_name_test {

using etude::detail::fault_of_entry_name;
using etude::detail::printable;

TEST_CASE("names of files in a folder, and in folders of it, are allowed") {
  for (const auto* name :
       {"a", "model.safetensors", "tokenizer/vocab.json", ".hidden", "..a", "a/...", "a b\n"})
    CHECK(fault_of_entry_name(name) == "");
}

TEST_CASE("names that lead elsewhere aren't allowed") {
  for (const std::string name :
       {"", "/", "/a", ".", "..", "../a", "a/..", "a/../b", "./a", "a//b", "a/", "etude_manifest.json"})
    CHECK(fault_of_entry_name(name) != "");
  CHECK(fault_of_entry_name({"a\0b", 3}) == "it contains a NUL");
}

TEST_CASE("a name in a message has no control characters and no premature end") {
  CHECK(printable("naïve") == "naïve");
  CHECK(printable({"a\0b\n\x1b\"", 6}) == "a\\u0000b\\n\\u001b\\\"");
  CHECK(printable("\xff") == "\xef\xbf\xbd");
  CHECK(printable(std::string(200, 'x')) == std::string(200, 'x'));
  CHECK(printable(std::string(201, 'x')) == std::string(200, 'x') + "...");
}

}  // namespace io_entry_name_test
