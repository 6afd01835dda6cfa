#include "etude/formats/npy_header.hpp"

#include <doctest/doctest.h>

#include <string>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"

namespace formats_npy_header_test {

using etude::DataError;
using toy::contains;
using Shape = std::vector<std::int64_t>;

std::string magic(char major) { return std::string("\x93NUMPY") + major + '\0'; }

// A file of format 1 with this header and `bytes` bytes of items.
std::string file(const std::string& header, std::size_t bytes = 0) {
  return magic(1) + static_cast<char>(header.size() & 255) + static_cast<char>(header.size() >> 8) + header +
         std::string(bytes, '\0');
}

etude::NpyHeader read(const std::string& text) {
  return etude::read_npy_header(std::as_bytes(std::span(text)));
}

std::string fault(const std::string& text) {
  return toy::fault_of<DataError>([&] { read(text); });
}

std::string fault_of_fields(const std::string& descr, const std::string& order, const std::string& shape,
                            std::size_t bytes = 0) {
  return fault(
      file("{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + "}", bytes));
}

TEST_CASE("a header has dtype, shape and the offset of the items") {
  const std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n";
  const auto header = read(file(text, 24));
  CHECK(header.dtype->torch_name == "Float");
  CHECK(header.shape == Shape{2, 3});
  CHECK(header.data_begin == 10 + text.size());
}

TEST_CASE("keys may have any order, either quote, any spaces and an optional trailing comma") {
  const auto header = read(file(R"( { "shape":( 4L , ) ,'fortran_order' :False,"descr":'|u1'} )", 4));
  CHECK(header.dtype->torch_name == "Byte");
  CHECK(header.shape == Shape{4});
}

TEST_CASE("the length of the header has two bytes in format 1 and four in formats 2 and 3") {
  const std::string text = "{'descr': '<i8', 'fortran_order': False, 'shape': ()}" + std::string(70'000, ' ');
  for (const char major : {char{2}, char{3}}) {
    const auto n = text.size();
    const auto length = std::string{static_cast<char>(n & 255), static_cast<char>(n >> 8 & 255),
                                    static_cast<char>(n >> 16 & 255), '\0'};
    const auto header = read(magic(major) + length + text + std::string(8, '\0'));
    CHECK(header.dtype->torch_name == "Long");
    CHECK(header.shape.empty());
    CHECK(header.data_begin == 12 + n);
  }
}

TEST_CASE("an empty array needs no bytes") {
  CHECK(read(file("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 5)}")).shape == Shape{0, 5});
}

TEST_CASE("any byte order is allowed for single bytes") {
  for (const auto* descr : {"'<u1'", "'>u1'", "'|u1'"})
    CHECK(fault_of_fields(descr, "False", "(2,)", 2) == "nothing was thrown");
}

TEST_CASE("arrays that can't be a tensor are refused, with what is allowed") {
  CHECK(contains(fault_of_fields("'>f4'", "False", "(1,)", 4), "descr is '>f4': must be little-endian"));
  CHECK(contains(fault_of_fields("'|O'", "False", "(1,)", 4), "descr is '|O': arrays of Python objects"));
  CHECK(contains(fault_of_fields("'<U3'", "False", "(1,)", 12), "descr is '<U3': must be one of |b1, |u1"));
  CHECK(contains(fault_of_fields("'|f4'", "False", "(1,)", 4), "descr is '|f4': must be one of"));
  CHECK(contains(fault_of_fields("''", "False", "(1,)", 4), "descr is '': must be one of"));
  CHECK(contains(fault_of_fields("[('x', '<f4')]", "False", "(1,)", 4), "descr: structured dtypes"));
  CHECK(contains(fault_of_fields("'<f4'", "True", "(1,)", 4), "fortran_order is True: must be False"));
  CHECK(contains(fault_of_fields("'<f4'", "0", "(1,)", 4), "fortran_order is '0': must be False"));
}

TEST_CASE("a shape is a tuple of integers from 0") {
  CHECK(contains(fault_of_fields("'<f4'", "False", "(1)", 4), "shape is (1): must be a tuple, (1,)"));
  CHECK(contains(fault_of_fields("'<f4'", "False", "(-1,)"), "shape: '-1' must be a whole number from 0"));
  CHECK(contains(fault_of_fields("'<f4'", "False", "(1.5,)"), "shape: '1.5' must be"));
  CHECK(contains(fault_of_fields("'<f4'", "False", "(01,)", 4), "shape: '01' must be"));
  CHECK(contains(fault_of_fields("'<f4'", "False", "(,)"), "shape: '' must be"));
  CHECK(contains(fault_of_fields("'<f4'", "False", "(1, 2 3)"), "header: ')' must be"));
  CHECK(contains(fault_of_fields("'<f4'", "False", "[1]"), "header: '(' must be"));
  std::string many;
  for (int i = 0; i < 65; ++i) many += "1,";
  CHECK(contains(fault_of_fields("'<f4'", "False", "(" + many + ")", 4), "more than 64 dimensions"));
}

TEST_CASE("sizes that overflow are refused, also where another is 0") {
  CHECK(contains(fault_of_fields("'|u1'", "False", "(9223372036854775808,)"),
                 "shape: 9223372036854775808 is too large"));
  CHECK(contains(fault_of_fields("'|u1'", "False", "(99999999999999999999999,)"), "is too large"));
  CHECK(contains(fault_of_fields("'<f4'", "False", "(4611686018427387904, 4)"), "it is too large"));
  CHECK(contains(fault_of_fields("'<f8'", "False", "(0, 4294967296, 4294967296)"), "it is too large"));
  CHECK(contains(fault_of_fields("'|u1'", "False", "(9223372036854775807,)"),
                 "needs 9223372036854775807 bytes, but 0 follow"));
}

TEST_CASE("the items fill the rest of the file") {
  CHECK(fault_of_fields("'<f4'", "False", "(2, 3)", 23) ==
        "shape (2, 3) of f4 needs 24 bytes, but 23 follow the header");
  CHECK(contains(fault_of_fields("'<f4'", "False", "(2, 3)", 25), "needs 24 bytes, but 25 follow"));
}

TEST_CASE("each key is required exactly once, and no other") {
  CHECK(fault(file("{'fortran_order': False, 'shape': ()}")) == "header: descr is missing");
  CHECK(fault(file("{}")) == "header: descr is missing");
  CHECK(fault(file("{'descr': '<f4', 'shape': ()}")) == "header: fortran_order is missing");
  CHECK(fault(file("{'descr': '<f4', 'fortran_order': False}")) == "header: shape is missing");
  CHECK(fault(file("{'descr': '<f4', 'descr': '<f4'}")) == "header: 'descr' appears twice");
  CHECK(fault(file("{'colour': 1}")) == "header: 'colour' must be one of descr, fortran_order, shape");
}

TEST_CASE("an invalid dict is refused, with the position of the error") {
  CHECK(fault(file("")) == "header: '{' must be at character 0");
  CHECK(fault(file("{'descr' '<f4'}")) == "header: ':' must be at character 9");
  CHECK(fault(file("{descr: '<f4'}")) == "header: a key must be a string, at character 1");
  CHECK(fault(file("{'descr")) == "header: the string at character 1 isn't terminated");
  CHECK(fault(file("{'descr': '<f4'")) == "header: '}' must be at character 15");
  CHECK(fault(file("{'descr': '|u1', 'fortran_order': False, 'shape': (0,)} + 1")) ==
        "header: unexpected text after the dict, at character 56");
}

TEST_CASE("every truncated file is reported, and none is read") {
  const auto whole = file("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 4);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(fault(whole.substr(0, size)) != "nothing was thrown");
  }
  CHECK(contains(fault(whole.substr(0, 5)), "it must begin with \\x93NUMPY"));
  CHECK(fault(whole.substr(0, 7)) == "its header is truncated, at 7 bytes");
  CHECK(contains(fault(whole.substr(0, 30)), "the file has only 30 bytes"));
}

TEST_CASE("other versions of the format are refused") {
  CHECK(fault(std::string("\x93NUMPY\x04\x00", 8) + std::string(8, '\0')) ==
        "format version is 4.0: must be 1.0, 2.0 or 3.0");
  CHECK(contains(fault(std::string("\x93NUMPY\x01\x01", 8) + std::string(8, '\0')), "version is 1.1"));
}

TEST_CASE("no changed byte of a header makes the reader read past the end") {
  const auto whole = file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24);
  for (std::size_t i = 0; i < whole.size() - 24; ++i) {
    for (int value = 0; value < 256; ++value) {
      auto changed = whole;
      changed[i] = static_cast<char>(value);
      try {
        const auto header = read(changed);
        std::uint64_t bytes = header.dtype->item_size;
        for (const auto size : header.shape) bytes *= static_cast<std::uint64_t>(size);
        REQUIRE(header.data_begin + bytes == changed.size());
      } catch (const DataError&) {
      }
    }
  }
}

TEST_CASE("a written header is NumPy's own, byte for byte") {
  // numpy.save of a float32 array [2, 3] and of a uint8 array [4], NumPy 2.4.
  CHECK(etude::npy_header_bytes(etude::npy_dtypes[8], Shape{2, 3}) ==
        std::string("\x93NUMPY\x01\x00v\x00", 10) +
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" + std::string(58, ' ') + "\n");
  CHECK(etude::npy_header_bytes(etude::npy_dtypes[1], Shape{4}) ==
        std::string("\x93NUMPY\x01\x00v\x00", 10) +
            "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }" + std::string(60, ' ') + "\n");
}

}  // namespace formats_npy_header_test
