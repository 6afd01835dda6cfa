#include "etude/io/checksum.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

namespace io_checksum_test {

std::string of(std::string_view text) { return etude::checksum(std::as_bytes(std::span(text))); }

// The expected values are what `xxhsum -H2` prints.
TEST_CASE("a checksum equals that of xxhsum -H2") {
  CHECK(of("") == "99aa06d3014798d86001c324468d497f");
  CHECK(of("abc") == "06b05ab6733a618578af5f94892f3950");
  std::string thousand;
  for (int i = 0; i < 1000; ++i) thousand += static_cast<char>('a' + i % 26);
  CHECK(of(thousand) == "b68384db4f7b6231e153425558d7da5d");
}

TEST_CASE("bytes in pieces have the checksum of the whole") {
  std::string text(5000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 % 251);
  for (const std::size_t size : {1u, 7u, 64u, 1024u, 4999u}) {
    etude::Checksum sum;
    for (std::size_t begin = 0; begin < text.size(); begin += size)
      sum.update(std::as_bytes(std::span(text)).subspan(begin, std::min(size, text.size() - begin)));
    sum.update({});
    CHECK(sum.hex() == of(text));
  }
}

TEST_CASE("every bit affects the checksum") {
  std::string text(300, 'x');
  const auto before = of(text);
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    const auto kept = text[bit / 8];
    text[bit / 8] = static_cast<char>(kept ^ (1 << bit % 8));
    CHECK(of(text) != before);
    text[bit / 8] = kept;
  }
}

}  // namespace io_checksum_test
