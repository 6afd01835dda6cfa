#include "etude/formats/safetensors_header.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "common/fault_of.hpp"
#include "common/growth.hpp"
#include "etude/base/error.hpp"

namespace formats_safetensors_header_test {

using toy::contains;

std::string with_length(std::uint64_t length, const std::string& rest) {
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + rest;
}

std::string file_of(const std::string& header, std::size_t bytes) {
  return with_length(header.size(), header + std::string(bytes, '\0'));
}

etude::SafeTensorsHeader read(const std::string& file) {
  return etude::read_safetensors_header(std::as_bytes(std::span(file)));
}

std::string fault_of(const std::string& file) {
  return toy::fault_of<etude::CheckpointError>([&] { read(file); });
}

TEST_CASE("a header describes each tensor and where its bytes are") {
  const std::string text =
      R"({"b":{"dtype":"I64","shape":[2,0,3],"data_offsets":[14,14]},"__metadata__":{"format":"pt","":"ü"},)"
      R"("a":{"shape":[],"data_offsets":[12,14],"dtype":"BF16"},"é":{"dtype":"F32","shape":[3,1],"data_offsets":[0,12]}} )";
  const auto header = read(file_of(text, 14));
  CHECK(header.data_begin == 8 + text.size());
  CHECK(header.metadata == std::map<std::string, std::string>{{"format", "pt"}, {"", "ü"}});
  REQUIRE(header.tensors.size() == 3);
  CHECK(header.tensors[0].name == "é");
  CHECK(header.tensors[0].dtype->name == "F32");
  CHECK(header.tensors[0].dtype->item_size == 4);
  CHECK(header.tensors[0].shape == std::vector<std::int64_t>{3, 1});
  CHECK(header.tensors[0].begin == 0);
  CHECK(header.tensors[0].end == 12);
  CHECK(header.tensors[1].name == "a");
  CHECK(header.tensors[1].shape.empty());
  CHECK(header.tensors[1].dtype->torch_name == "BFloat16");
  CHECK(header.tensors[2].shape == std::vector<std::int64_t>{2, 0, 3});
}

TEST_CASE("unknown fields are skipped, whatever they contain") {
  CHECK(fault_of(file_of(R"({"a":{"dtype":"U8","later":{"shape":[-1],"x":null},"more":[[1,-2,0.5,"t",true]],)"
                         R"("shape":[1],"n":null,"data_offsets":[0,1]}})",
                         1)) == "nothing was thrown");
}

TEST_CASE("every dtype has the format's size") {
  // The dtypes' sizes in bits, from the format's description.
  const std::map<std::string, int> bits = {
      {"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8},
      {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},
      {"F16", 16},    {"BF16", 16},       {"I32", 32},        {"U32", 32},    {"F32", 32},
      {"C64", 64},    {"F64", 64},        {"I64", 64},        {"U64", 64}};
  CHECK(etude::safetensors_dtypes.size() == bits.size());
  for (const auto& dtype : bits) {
    const auto& name = dtype.first;
    const auto size = dtype.second;
    CAPTURE(name);
    const auto bytes = static_cast<std::size_t>(size) / 8;
    const auto text =
        fmt::format(R"({{"a":{{"dtype":"{}","shape":[3],"data_offsets":[0,{}]}}}})", name, 3 * bytes);
    CHECK(fault_of(file_of(text, 3 * bytes)) == "nothing was thrown");
  }
}

TEST_CASE("a written header is read back, aligned") {
  using namespace etude;
  const auto* wide = &safetensors_dtypes.back();
  const std::vector<SafeTensorsEntry> entries = {
      {"b", wide, {2, 1}, 0, 16}, {"\"a\n", wide, {}, 16, 24}, {"", wide, {0}, 24, 24}};
  for (const std::string value : {"", "1", "12", "123", "1234", "12345", "123456", "1234567"}) {
    const auto bytes = safetensors_header_bytes(entries, {{"key", value}});
    CHECK(bytes.size() % 8 == 0);
    const auto header = read(bytes + std::string(24, 'x'));
    CHECK(header.data_begin == bytes.size());
    CHECK(header.metadata == std::map<std::string, std::string>{{"key", value}});
    REQUIRE(header.tensors.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(header.tensors[i].name == entries[i].name);
      CHECK(header.tensors[i].dtype == entries[i].dtype);
      CHECK(header.tensors[i].shape == entries[i].shape);
      CHECK(header.tensors[i].begin == entries[i].begin);
      CHECK(header.tensors[i].end == entries[i].end);
    }
  }
}

TEST_CASE("names that the format can't represent aren't written") {
  using namespace etude;
  const auto* dtype = &safetensors_dtypes.front();
  const auto write = [&](const std::vector<SafeTensorsEntry>& entries,
                         const std::map<std::string, std::string>& metadata = {}) {
    return safetensors_header_bytes(entries, metadata);
  };
  CHECK_THROWS_WITH_AS(write({{"a", dtype, {}, 0, 1}, {"a", dtype, {}, 1, 2}}),
                       "tensor 'a': the name is duplicate or reserved", CheckpointError);
  CHECK_THROWS_AS(write({{"__metadata__", dtype, {}, 0, 1}}), CheckpointError);
  CHECK_THROWS_AS(write({{"\xff", dtype, {}, 0, 1}}), CheckpointError);
  CHECK_THROWS_AS(write({}, {{"a", "\xff"}}), CheckpointError);
}

TEST_CASE("a file with wrong sizes is refused before they are used") {
  CHECK(contains(fault_of(""), "0 bytes"));
  CHECK(contains(fault_of("1234567"), "7 bytes"));
  CHECK(contains(fault_of(with_length(100, "{}")), "header length: 100"));
  CHECK(contains(fault_of(with_length(~std::uint64_t{0}, "{}")), "header length"));
  CHECK(contains(fault_of(with_length(100'000'001, "{}")), "header length"));
  const auto one = [](const char* shape, const char* offsets) {
    return fmt::format(R"({{"a":{{"dtype":"F32","shape":{},"data_offsets":{}}}}})", shape, offsets);
  };
  CHECK(contains(fault_of(file_of(one("[2]", "[0,8]"), 4)),
                 "data_offsets: [0,8] isn't a range of the 4 bytes"));
  CHECK(contains(fault_of(file_of(one("[2]", "[8,0]"), 8)), "data_offsets"));
  CHECK(contains(fault_of(file_of(one("[2]", "[0]"), 8)), "data_offsets"));
  CHECK(contains(fault_of(file_of(one("[2]", "[0,-8]"), 8)), "whole numbers"));
  CHECK(contains(fault_of(file_of(one("[3]", "[0,8]"), 8)), "8 bytes, but its dtype and shape need 12"));
  CHECK(contains(fault_of(file_of(one("[1.5]", "[0,8]"), 8)), "shape"));
  CHECK(contains(fault_of(file_of(one("[-2]", "[0,8]"), 8)), "shape"));
  CHECK(contains(fault_of(file_of(one("8", "[0,8]"), 8)), "shape"));
  CHECK(contains(fault_of(file_of(one("[4611686018427387904,4]", "[0,0]"), 0)), "too large"));
  CHECK(contains(fault_of(file_of(one("[18446744073709551615]", "[0,0]"), 0)), "too large"));
  CHECK(contains(fault_of(file_of(one("[0,4611686018427387904,4611686018427387904]", "[0,0]"), 0)),
                 "too large"));
  CHECK(contains(fault_of(file_of(one("[2]", "[0,8]"), 9)), "end at byte 8 of 9"));
  CHECK(contains(fault_of(file_of(one("[2]", "[4,12]"), 12)), "begin at 4, but the bytes before end at 0"));
  std::string dimensions = "[1";
  for (int i = 0; i < 64; ++i) dimensions += ",1";
  CHECK(contains(fault_of(file_of(one((dimensions + "]").c_str(), "[0,4]"), 4)), "65 dimensions"));
}

TEST_CASE("tensors that overlap or leave gaps are refused") {
  const auto two = [](const char* a, const char* b) {
    return fmt::format(
        R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
        a, b);
  };
  CHECK(fault_of(file_of(two("[0,4]", "[4,8]"), 8)) == "nothing was thrown");
  CHECK(contains(fault_of(file_of(two("[0,4]", "[2,6]"), 6)), "tensor 'b'"));
  CHECK(contains(fault_of(file_of(two("[0,4]", "[0,4]"), 4)), "tensor 'b'"));
  CHECK(contains(fault_of(file_of(two("[5,9]", "[0,4]"), 9)), "tensor 'a'"));
}

TEST_CASE(
    "metadata may be missing, null or empty, and otherwise holds strings, as in the library of safetensors") {
  struct Row {
    const char* metadata;
    bool theirs;  ///< true if safetensors 0.8 for Python opens the file
    bool ours = theirs;
  };
  for (const auto& row : {Row{"null", true}, Row{"{}", true}, Row{R"({"a":"b"})", true},
                          Row{R"({"a":null})", false}, Row{R"({"a":1})", false}, Row{R"({"a":{}})", false},
                          Row{"[]", false}, Row{"\"x\"", false}, Row{"1", false}, Row{"true", false},
                          // Differs on purpose: one of the two would be lost.
                          Row{R"({"a":"b","a":"c"})", true, false}}) {
    CAPTURE(std::string(row.metadata));
    for (const auto* form :
         {R"({{"__metadata__":{},"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}})",
          R"({{"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}},"__metadata__":{}}})"})
      CHECK((fault_of(file_of(fmt::format(fmt::runtime(form), row.metadata), 1)) == "nothing was thrown") ==
            row.ours);
  }
  const auto header =
      read(file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"__metadata__":null})", 1));
  CHECK(header.metadata.empty());
  CHECK(header.tensors.size() == 1);
  CHECK(contains(fault_of(file_of(R"({"a":null})", 0)), "tensor 'a': it must be an object"));
}

TEST_CASE("a header that violates the format is refused") {
  CHECK(contains(fault_of(file_of("[]", 0)), "begin with '{'"));
  CHECK(contains(fault_of(file_of(" {}", 0)), "begin with '{'"));
  CHECK(contains(fault_of(file_of("{", 0)), "header: "));
  CHECK(contains(fault_of(file_of("{} {}", 0)), "header: "));
  CHECK(contains(fault_of(file_of("{\"\xff\":{}}", 0)), "header: "));
  CHECK(contains(fault_of(file_of(R"({"a":1})", 0)), "tensor 'a'"));
  CHECK(contains(fault_of(file_of(R"({"a":{}})", 0)), "dtype is missing"));
  CHECK(contains(fault_of(file_of(R"({"a":{"dtype":"F32","shape":[0]}})", 0)), "data_offsets is missing"));
  CHECK(contains(fault_of(file_of(R"({"a":{"dtype":3,"shape":[0],"data_offsets":[0,0]}})", 0)), "dtype"));
  CHECK(contains(fault_of(file_of(R"({"a":{"dtype":"F4","shape":[0],"data_offsets":[0,0]}})", 0)),
                 "dtype: F4 is unknown"));
  CHECK(contains(fault_of(file_of(R"({"__metadata__":[]})", 0)), "__metadata__"));
  CHECK(contains(fault_of(file_of(R"({"__metadata__":{"a":1}})", 0)), "'a' must be a string"));
  const std::string entry = R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  CHECK(contains(fault_of(file_of("{\"a\":" + entry + ",\"a\":" + entry + "}", 0)), "'a' appears twice"));
  CHECK(contains(
      fault_of(file_of(R"({"a":{"dtype":"F32","dtype":"F64","shape":[0],"data_offsets":[0,0]}})", 0)),
      "'dtype' appears twice"));
  CHECK(contains(fault_of(file_of("{\"a\":" + std::string(100'000, '['), 0)),
                 "tensor 'a': it must be an object"));
  CHECK(contains(fault_of(file_of("{\"a\":{\"later\":" + std::string(100'000, '['), 0)), "nested"));
  CHECK(contains(fault_of(file_of("{\"a\":{\"later\":{\"b\":{\"c\":{", 0)), "nested"));
  CHECK(contains(fault_of(file_of(R"({"__metadata__":{"a":{}}})", 0)), "'a' must be a string"));
  CHECK(contains(fault_of(file_of(R"({"__metadata__":{"a":"1","a":"2"}})", 0)), "'a' appears twice"));
  CHECK(contains(fault_of(file_of(R"({"__metadata__":{},"__metadata__":{}})", 0)), "appears twice"));
  CHECK(contains(fault_of(file_of(R"({"a":{"dtype":"F32","shape":[[0]],"data_offsets":[0,0]}})", 0)),
                 "whole numbers"));
  CHECK(contains(fault_of(file_of(R"({"a":{"dtype":{},"shape":[0],"data_offsets":[0,0]}})", 0)),
                 "dtype: it must be a string"));
  CHECK(contains(fault_of(file_of(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0,0]}})", 0)),
                 "it has 3 numbers"));
  CHECK(contains(fault_of(file_of(R"({"a":{"dtype":"F32","shape":[true],"data_offsets":[0,0]}})", 0)),
                 "whole numbers"));
  CHECK(contains(fault_of(file_of(std::string("{}\0x", 4), 0)), "isn't JSON in UTF-8, at byte 3"));
  CHECK(contains(fault_of(file_of("{\"\xc3\x28\":{}}", 0)), "isn't JSON in UTF-8"));
  CHECK(fault_of(file_of("{}   ", 0)) == "nothing was thrown");
}

TEST_CASE("a name in a message can't forge or truncate the message") {
  CHECK(fault_of(file_of(R"({"a\u0000\n":1})", 0)) == "tensor 'a\\u0000\\n': it must be an object");
  CHECK(fault_of(file_of("{\"" + std::string(1'000'000, 'x') + "\":1}", 0)).size() < 300);
}

TEST_CASE("a hostile header is refused quickly") {
  std::string list = R"({"a":{"dtype":"U8","shape":[0)";
  for (int i = 0; i < 500'000; ++i) list += ",0";
  CHECK(contains(fault_of(file_of(list + "]}}", 0)), "it has 500001 dimensions"));
  const auto read = [](const std::string& text) {
    CHECK(fault_of(file_of(text, 0)) != "nothing was thrown");
  };
  CHECK(toy::growth(50'000, [&](int n) {
          std::string names = "{";
          for (int i = 0; i < n; ++i)
            names += fmt::format(R"("{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},)", i);
          read(names + "}");
        }) < 3.5);
  CHECK(toy::growth(2'000'000, [&](int n) { read("{\"" + std::string(static_cast<std::size_t>(n), 'x')); }) <
        3.5);
  CHECK(toy::growth(100'000, [&](int n) {
          std::string fields = R"({"a":{)";
          for (int i = 0; i < n; ++i) fields += fmt::format(R"("{}":0,)", i);
          read(fields + "\"x\":0}}");
        }) < 3.5);
}

TEST_CASE("bools are 0 or 1") {
  using etude::detail::are_bools;
  std::string bytes(1000, '\1');
  std::fill_n(bytes.begin(), 500, '\0');
  CHECK(are_bools(std::as_bytes(std::span(bytes))));
  CHECK(are_bools({}));
  for (const std::size_t place : {0u, 1u, 500u, 998u, 999u}) {
    for (const int value : {2, 3, 128, 255}) {
      auto changed = bytes;
      changed[place] = static_cast<char>(value);
      CHECK_FALSE(are_bools(std::as_bytes(std::span(changed))));
    }
  }
}

}  // namespace formats_safetensors_header_test
