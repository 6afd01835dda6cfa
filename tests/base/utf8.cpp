#include "etude/base/utf8.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>

namespace base_utf8_test {

TEST_CASE("valid and invalid UTF-8 are distinguished") {
  for (const std::string good : {"", "loss", "caf\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
                                 "\xED\x9F\xBF", "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"})
    CHECK(etude::is_utf8(good));
  for (const std::string bad :
       {"caf\xE9", "\x80", "\xC3", "\xC0\xAF", "\xC1\xBF", "\xE0\x9F\xBF", "\xE2\x82", "\xED\xA0\x80",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"})
    CHECK_FALSE(etude::is_utf8(bad));
}

TEST_CASE("nlohmann's JSON accepts and refuses the same texts of up to three bytes") {
  const std::string bytes("a\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC2\xDF\xE0\xE1\xED\xEF\xF0\xF4\xF5\xFF");
  const auto json_takes = [](const std::string& text) {
    try {
      return !nlohmann::json(text).dump().empty();
    } catch (const nlohmann::json::exception&) {
      return false;
    }
  };
  for (const char a : bytes)
    for (const char b : bytes)
      for (const char c : bytes) {
        const std::string text{a, b, c};
        CHECK_MESSAGE(etude::is_utf8(text) == json_takes(text), etude::quoted_utf8(text));
      }
}

TEST_CASE("each byte that isn't UTF-8 is replaced, or escaped for a message") {
  CHECK(etude::mended_utf8("caf\xE9 \xC3\xA9!\xFF") == "caf\xEF\xBF\xBD \xC3\xA9!\xEF\xBF\xBD");
  CHECK(etude::quoted_utf8("caf\xE9 \xC3\xA9\n") == "'caf\\xe9 \xC3\xA9\\x0a'");
}

TEST_CASE("all strings and keys of JSON are repaired") {
  nlohmann::json json{{"list", {"good", "b\xE4 d", 1}}, {"k\xFFy", {{"deep", "\xFE"}}}};
  CHECK(etude::mend_utf8(json) == "'k\\xffy'");
  CHECK(json.dump() ==
        "{\"k\xEF\xBF\xBDy\":{\"deep\":\"\xEF\xBF\xBD\"},\"list\":[\"good\",\"b\xEF\xBF\xBD d\",1]}");
  CHECK_FALSE(etude::mend_utf8(json));
}

}  // namespace base_utf8_test
