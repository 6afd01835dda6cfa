#include "etude/base/text_columns.hpp"

#include <doctest/doctest.h>

namespace base_text_columns_test {

using namespace etude::detail;

TEST_CASE("columns of wide, narrow and combining characters") {
  CHECK(columns_of("loss") == 4);
  CHECK(columns_of("Größe") == 5);
  CHECK(columns_of("データ") == 6);
  CHECK(columns_of("정확도") == 6);
  CHECK(columns_of("e\u0301te\u0301") == 3);  // with combining accents
  CHECK(columns_of("⚡🚀") == 4);
  CHECK(columns_of("█▌›…") == 4);
}

TEST_CASE("the first columns of a text never split a character") {
  CHECK(first_columns("loss", 10) == "loss");
  CHECK(first_columns("loss", 2) == "lo");
  CHECK(first_columns("データ", 4) == "デー");
  CHECK(first_columns("データ", 3) == "デ");
  CHECK(first_columns("e\u0301a", 1) == "e\u0301");
  CHECK(first_columns("データ", 0).empty());
}

TEST_CASE("a plain text doesn't control the terminal") {
  CHECK(plain_text("a\x1b[2Jb\r\n") == "a\uFFFD[2Jb\uFFFD\uFFFD");
  CHECK(plain_text("\xFF") == "\uFFFD");
}

}  // namespace base_text_columns_test
