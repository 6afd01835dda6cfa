#include "etude/base/base64.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>

namespace base_base64_test {

using etude::detail::base64;
using etude::detail::from_base64;

TEST_CASE("Base64 is that of RFC 4648, in both directions, with and without padding") {
  // The test vectors in section 10 of RFC 4648.
  for (const auto& [bytes, text] : {std::pair<std::string, std::string>{"", ""},
                                    {"f", "Zg=="},
                                    {"fo", "Zm8="},
                                    {"foo", "Zm9v"},
                                    {"foob", "Zm9vYg=="},
                                    {"fooba", "Zm9vYmE="},
                                    {"foobar", "Zm9vYmFy"},
                                    {std::string("\xFB\xFF\0", 3), "+/8A"}}) {
    CHECK(base64(bytes) == text);
    CHECK(from_base64(text) == bytes);
    CHECK(from_base64(text.substr(0, text.find('='))) == bytes);
  }
  CHECK(from_base64("Zm9v!") == std::nullopt);
  CHECK(from_base64("Zm=v") == std::nullopt);
}

}  // namespace base_base64_test
