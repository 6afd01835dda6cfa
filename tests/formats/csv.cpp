#include "etude/formats/csv.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "etude/data/dataset.hpp"

namespace formats_csv_test {

using etude::CsvOptions;
using etude::CsvTable;
using etude::DataError;
using toy::contains;
using Texts = std::vector<std::string>;

CsvTable table(const std::string& content, CsvOptions options = {}) {
  const toy::Folder folder;
  toy::write_text(folder / "x.csv", content);
  return CsvTable(folder / "x.csv", options);
}

template <class Act>
std::string fault(const std::string& content, Act act, CsvOptions options = {}) {
  return toy::fault_of<DataError>([&] { act(table(content, options)); });
}
std::string fault(const std::string& content, CsvOptions options = {}) {
  return fault(
      content, [](const CsvTable&) {}, options);
}

TEST_CASE("columns are selected by name, in the given order, as numbers") {
  const auto iris = table("length,width,species\n5.1,3.5,setosa\n-4.9,3e-1,\"virginica, wild\"\n");
  CHECK(iris.rows() == 2);
  CHECK(iris.names() == Texts{"length", "width", "species"});
  CHECK(iris.columns({"width", "length"}).equal(torch::tensor({3.5f, 5.1f, 0.3f, -4.9f}).reshape({2, 2})));
  CHECK(iris.column("length", torch::kDouble).equal(torch::tensor({5.1, -4.9}, torch::kDouble)));
  CHECK(iris.text("species") == Texts{"setosa", "virginica, wild"});
}

TEST_CASE("integers are exact") {
  const auto numbers = table("n\n9223372036854775807\n-9223372036854775808\n+7\n");
  CHECK(numbers.column("n", torch::kLong)
            .equal(torch::tensor({std::numeric_limits<std::int64_t>::max(),
                                  std::numeric_limits<std::int64_t>::min(), std::int64_t{7}})));
}

TEST_CASE("a float32 is the nearest to the text, without rounding to a double first") {
  // This number is just below the middle of two float32 values, but a double loses the digits that show it.
  const auto value = table("x\n1.00000017881393432617187499\n").column("x").item<float>();
  CHECK(value == 1.00000011920928955078125f);
}

TEST_CASE("a number too small for a float32 is 0") {
  CHECK(table("x\n-1e-50\n1e-40\n").column("x").equal(torch::tensor({-0.f, 1e-40f})));
}

struct Row {
  std::string text;
  std::optional<double> theirs;  ///< what `pandas.read_csv(dtype=...)` 3.1 reads
  std::optional<double> ours = theirs;
};

void check_rows(const std::vector<Row>& rows, torch::ScalarType dtype) {
  for (const auto& row : rows) {
    CAPTURE(row.text);
    std::optional<double> read;
    try {
      read = table("x,y\n" + row.text + ",z\n").column("x", dtype).item<double>();
    } catch (const DataError&) {
    }
    REQUIRE(read.has_value() == row.ours.has_value());
    if (!read) continue;
    CHECK(std::isnan(*read) == std::isnan(*row.ours));
    if (!std::isnan(*read)) CHECK((*read == *row.ours && std::signbit(*read) == std::signbit(*row.ours)));
  }
}

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr auto refused = std::nullopt;

TEST_CASE("numbers are read as pandas reads them, but for words, gaps and those too large") {
  const std::vector<Row> both{{"1", 1},
                              {"+1", 1},
                              {"-1", -1},
                              {" 1", 1},
                              {"1 ", 1},
                              {"\" 1 \"", 1},
                              {"+ 1", refused},
                              {"+-1", refused},
                              {"1.", 1},
                              {"1.0", 1},
                              {".5", 0.5},
                              {"010", 10},
                              {"-0", -0.0},
                              {"-0.0", -0.0},
                              {"1e3", 1000},
                              {"1E+3", 1000},
                              {"1e", refused},
                              {"1e-400", 0},
                              {"-1e-400", -0.0},
                              {"1e-2147483648", 0},
                              {"inf", inf},
                              {"-Infinity", -inf},
                              {"nan", NAN},
                              {"-nan", NAN},
                              {"nan(1)", refused},
                              {"1_000", refused},
                              {"0x10", refused},
                              {"1 2", refused},
                              {"1f", refused},
                              // Differs on purpose: NumPy reads these two as NaN, pandas as text.
                              {"NAN", refused, NAN},
                              {"+nan", refused, NAN},
                              // Differs on purpose: missing numbers are refused by default, and a word isn't
                              // a number.
                              {"", NAN, refused},
                              {"True", 1, refused},
                              // Differs on purpose: a number that is too large is a mistake, not an infinity.
                              {"1e400", inf, refused},
                              {"-1e400", -inf, refused}};
  check_rows(both, torch::kDouble);
  check_rows(both, torch::kFloat);
  check_rows({{"4.9e-324", 5e-324},
              {"2e-324", 0},
              {"1e-46", 1e-46},
              {"1e39", 1e39},
              {"1.7976931348623159e308", inf, refused}},
             torch::kDouble);
  check_rows({{"4.9e-324", 0},
              {"-1e-46", -0.0},
              {"3.4028235e38", 3.4028234663852886e38},
              {"3.4028236e38", inf, refused},
              {"1e39", inf, refused}},
             torch::kFloat);
}

TEST_CASE("whole numbers are read as pandas reads them, but never rounded") {
  check_rows({{"1", 1},
              {"+1", 1},
              {" 1", 1},
              {"-0", 0},
              {"010", 10},
              {"3.0", 3},
              {"3.", 3},
              {"-0.0", 0},
              {"1e3", 1000},
              {"1.5e3", 1500},
              {"1e18", 1e18},
              {"3.5", refused},
              {".5", refused},
              {"1e-3", refused},
              {"1e19", refused},
              {"9223372036854775808", refused},
              {"-9223372036854775809", refused},
              {"inf", refused},
              {"nan", refused},
              {"", refused},
              {"1_000", refused},
              {"4.9e-324", refused},
              // Differs on purpose.
              {"1e-400", 0, refused},
              {"True", 1, refused}},
             torch::kLong);
  // pandas reads ...992, the nearest double.
  for (const auto* text : {"9007199254740993.0", "9.007199254740993e15"})
    CHECK(table(std::string("x\n") + text + "\n").column("x", torch::kLong).item<std::int64_t>() ==
          9007199254740993);
}

TEST_CASE("a whole number that replaces missing ones isn't rounded or cut") {
  const CsvOptions options{.missing = 1e300};
  CHECK(contains(fault(
                     "x,y\n,2\n", [](const CsvTable& t) { t.column("x", torch::kLong); }, options),
                 "must be a whole number"));
}

TEST_CASE("a table is a dataset's tensors") {
  const auto numbers = table("x,y\n1,0\n2,1\n");
  const etude::Dataset dataset(numbers.columns({"x"}), numbers.column("y", torch::kLong));
  CHECK(dataset.size() == 2);
}

TEST_CASE("without a header, columns are named by position") {
  const auto numbers = table("1,2\n3,4", {.header = false});
  CHECK(numbers.names() == Texts{"0", "1"});
  CHECK(numbers.column("1").equal(torch::tensor({2.f, 4.f})));
}

TEST_CASE(
    "quotes, doubled quotes, newlines in a field, CR LF, a byte-order mark and empty lines are handled") {
  const auto texts = table("\xef\xbb\xbf\"a\",b\r\n\r\n\"x \"\"y\"\"\", z \r\n\"two\nlines\",\"\"\r\n");
  CHECK(texts.names() == Texts{"a", "b"});
  CHECK(texts.text("a") == Texts{"x \"y\"", "two\nlines"});
  CHECK(texts.text("b") == Texts{"z", ""});
}

TEST_CASE("the delimiter and the quote can be changed") {
  const auto texts = table("a;b\n'1;5';2\n", {.delimiter = ';', .quote = '\''});
  CHECK(texts.text("a") == Texts{"1;5"});
  CHECK(texts.column("b").equal(torch::tensor({2.f})));
}

TEST_CASE("an empty field is handled as the options say, or an error") {
  const auto filled = table("x,y\n,2\n3,\n", {.missing = -1});
  CHECK(filled.columns({"x", "y"}).equal(torch::tensor({-1.f, 2.f, 3.f, -1.f}).reshape({2, 2})));
  CHECK(filled.column("y", torch::kLong).equal(torch::tensor({std::int64_t{2}, std::int64_t{-1}})));
  CHECK(std::isnan(table("x,y\n,2\n", {.missing = NAN}).column("x").item<float>()));
  const auto column = [](auto dtype) { return [=](const CsvTable& t) { t.column("x", dtype); }; };
  CHECK(contains(fault("x,y\n,2\n", column(torch::kFloat)), "line 2: column 'x' is '': must be a number"));
  CHECK(contains(fault("x,y\n,2\n", column(torch::kLong), {.missing = NAN}), "must be a whole number"));
}

TEST_CASE("other texts than the empty one can count as missing") {
  const CsvOptions options{.missing = NAN, .missing_texts = {"NA", "-"}};
  const auto numbers = table("x\nNA\n-\n-1\n", options).column("x");
  CHECK(numbers.isnan().equal(torch::tensor({true, true, false})));
  CHECK(numbers[2].item<float>() == -1);
  const auto column = [](const CsvTable& t) { t.column("x"); };
  CHECK(contains(fault("x,y\n,1\n", column, options), "line 2: column 'x' is '': must be a number"));
  CHECK(contains(fault("x\nNA\n", column), "line 2: column 'x' is 'NA': must be a number"));
  CHECK(
      contains(fault("x\nNA\n", column, {.missing_texts = {"NA"}}), "column 'x' is 'NA': must be a number"));
}

TEST_CASE("categories are sorted, and codes are their places, -1 where one is missing") {
  const auto penguins = table("sex,island\nmale,Dream\nNA,Biscoe\nfemale,Dream\n", {.missing_texts = {"NA"}});
  CHECK(penguins.categories("sex") == Texts{"female", "male"});
  CHECK(penguins.codes("sex", penguins.categories("sex")).equal(torch::tensor({1, -1, 0}, torch::kLong)));
  CHECK(penguins.categories("island") == Texts{"Biscoe", "Dream"});
  CHECK(penguins.codes("island", {"Torgersen", "Dream", "Biscoe"})
            .equal(torch::tensor({1, 2, 1}, torch::kLong)));
  CHECK(table("a\n").codes("a", {}).sizes() == std::vector<std::int64_t>{0});
}

TEST_CASE("a text that isn't among the given categories is an error") {
  CHECK(contains(fault("a,b\n1,x\n1,z\n",
                       [](const CsvTable& t) {
                         t.codes("b", {"x", "y"});
                       }),
                 "x.csv: line 3: column 'b' is 'z': must be one of x, y"));
}

TEST_CASE("the error about an invalid number names file, line, column and text") {
  const auto column = [](auto dtype) { return [=](const CsvTable& t) { t.column("x", dtype); }; };
  const auto in_lines = fault("x,y\n1,\"a\nb\"\n1.5e,2\n", column(torch::kFloat));
  CHECK(contains(in_lines, "x.csv: line 4: column 'x' is '1.5e': must be a number"));
  for (const auto* text : {"abc", "1 2", "0x10", "1,5", "--1", "+-1", "+", "1e", ".", "\"1\"\"\""}) {
    CAPTURE(text);
    CHECK(contains(fault("x\n" + std::string(text) + "\n", [](const CsvTable& t) { t.column(t.names()[0]); }),
                   "line 2: "));
  }
  CHECK(contains(fault("x\n1.5\n", column(torch::kLong)), "column 'x' is '1.5': must be a whole number"));
  CHECK(contains(fault("x\n9223372036854775808\n", column(torch::kLong)), "must be in the range of int64"));
  CHECK(contains(fault("x\n1e39\n", column(torch::kFloat)), "must be in the range of float32"));
  CHECK(contains(fault("x\n" + std::string(1000, 'y') + "\n", column(torch::kFloat)), "yyy...': must be"));
}

TEST_CASE("the error about a row of another length or a stray or unclosed quote names the line") {
  CHECK(contains(fault("a,b\n1,2\n3\n"), "x.csv: line 3: 1 fields: must be 2"));
  CHECK(contains(fault("a,b\n1,2,3\n"), "line 2: 3 fields: must be 2"));
  CHECK(contains(fault("1,2\n3,4,5\n", {.header = false}), "line 2: 3 fields: must be 2"));
  CHECK(contains(fault("a\n\"open\n"), "line 2: a field that begins with a quote must end with one"));
  CHECK(contains(fault("a\nst\"ray\n"), "line 2: a field that begins with a quote must end with one"));
  CHECK(contains(fault("a,b,a\n"), "line 1: two columns are named 'a'"));
  CHECK(contains(fault(""), "x.csv: it has no rows"));
}

TEST_CASE("missing columns and unsupported dtypes are refused") {
  CHECK(contains(fault("a,b\n", [](const CsvTable& t) { t.column("c"); }),
                 "x.csv: no column is named 'c'; columns are: a, b"));
  CHECK(toy::fault_of<etude::ArgumentError>([] { table("a\n1\n").column("a", torch::kInt); }) ==
        "dtype is int32: must be float32, float64 or int64");
  CHECK(contains(toy::fault_of<DataError>([] { CsvTable("/nonexistent/x.csv"); }),
                 "/nonexistent/x.csv can't be read"));
}

TEST_CASE("a table without rows has empty columns") {
  CHECK(table("a,b\n").columns({"a", "b"}).sizes() == std::vector<std::int64_t>{0, 2});
  CHECK(table("a,b\n").column("a").sizes() == std::vector<std::int64_t>{0});
}

TEST_CASE("arbitrary bytes are read or refused") {
  std::uint32_t state = 1;
  int reads = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes;
    for (int length = i % 40; length > 0; --length) {
      state = state * 1664525u + 1013904223u;
      bytes += "a1,\"\n\r \0;"[state >> 24 & 7];
    }
    try {
      const auto read = table(bytes);
      for (const auto& name : read.names())
        REQUIRE(read.text(name).size() == static_cast<std::size_t>(read.rows()));
      ++reads;
    } catch (const DataError&) {
    }
  }
  CHECK(reads > 100);
  CHECK(reads < 2900);
}

}  // namespace formats_csv_test
