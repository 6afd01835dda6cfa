#include "etude/checkpoint/safetensors.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace {

namespace fs = std::filesystem;
using Named = std::vector<std::pair<std::string, torch::Tensor>>;

// A file that is gone at the end of its test.
struct TempFile {
  fs::path path = fs::temp_directory_path() / fmt::format("etude_safetensors_{}_{}", getpid(), counter()++);
  ~TempFile() { fs::remove(path); }
  static int& counter() {
    static int count = 0;
    return count;
  }
  std::string text() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const { std::ofstream(path, std::ios::binary) << text; }
};

std::string with_length(std::uint64_t length, const std::string& rest) {
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + rest;
}

std::string file_of(const std::string& header, std::size_t bytes) {
  return with_length(header.size(), header + std::string(bytes, '\0'));
}

std::string fault_of(const std::string& content) {
  const TempFile file;
  file.write(content);
  try {
    etude::load_safetensors(file.path);
  } catch (const etude::CheckpointError& error) {
    CHECK(std::string(error.what()).starts_with(file.path.string() + ": "));
    return error.what();
  }
  return "it was read";
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

const torch::Tensor& at(const etude::SafeTensors& file, const std::string& name) {
  for (const auto& [key, tensor] : file.tensors) {
    if (key == name) return tensor;
  }
  throw std::out_of_range(name);
}

TEST_CASE("a file is what the format says, byte for byte") {
  const TempFile file;
  etude::save_safetensors(file.path,
                          {{"b", torch::tensor({1, 2}, torch::kByte)},
                           {"z", torch::tensor({1.0f})},
                           {"a", torch::tensor({2.0f})}},
                          {{"format", "pt"}});
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("z":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"b":{"dtype":"U8","shape":[2],"data_offsets":[8,10]}})";
  const auto padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const std::string bytes{0, 0, 0, 0x40, 0, 0, char(0x80), 0x3f, 1, 2};
  CHECK(file.text() == with_length(padded.size(), padded + bytes));
  CHECK_FALSE(fs::exists(file.path.string() + ".partial"));
}

TEST_CASE("every dtype, shape and layout comes back") {
  Named tensors;
  for (const auto dtype :
       {torch::kBool, torch::kByte, torch::kChar, torch::kShort, torch::kInt, torch::kLong, torch::kHalf,
        torch::kBFloat16, torch::kFloat, torch::kDouble, torch::kComplexFloat}) {
    tensors.emplace_back(etude::dtype_name(dtype), torch::arange(6).reshape({2, 3}).remainder(2).to(dtype));
  }
  tensors.emplace_back("scalar", torch::full({}, 3.5));
  tensors.emplace_back("empty", torch::zeros({0, 4}));
  tensors.emplace_back("transposed", torch::arange(6).reshape({2, 3}).t());
  tensors.emplace_back("parameter", torch::ones({2}).requires_grad_());
  tensors.emplace_back("naïve \"name\"", torch::ones({1}));
  const TempFile file;
  etude::save_safetensors(file.path, tensors, {{"step", "3"}, {"text", "ü\n"}});
  const auto loaded = etude::load_safetensors(file.path);
  CHECK(loaded.tensors.size() == tensors.size());
  for (const auto& named : tensors) {
    const auto& name = named.first;
    const auto& tensor = named.second;
    CAPTURE(name);
    CHECK((at(loaded, name).scalar_type() == tensor.scalar_type()));
    CHECK(at(loaded, name).sizes() == tensor.sizes());
    CHECK(at(loaded, name).equal(tensor));
  }
  CHECK(loaded.metadata == std::map<std::string, std::string>{{"step", "3"}, {"text", "ü\n"}});
}

TEST_CASE("a file without tensors is a file") {
  const TempFile file;
  etude::save_safetensors(file.path, {});
  CHECK(etude::load_safetensors(file.path).tensors.empty());
}

TEST_CASE("what can't be saved is refused and leaves the old file") {
  const TempFile file;
  etude::save_safetensors(file.path, {{"a", torch::ones({1})}});
  const auto before = file.text();
  const auto refused = [&](const Named& tensors) {
    CHECK_THROWS_AS(etude::save_safetensors(file.path, tensors), etude::CheckpointError);
    CHECK(file.text() == before);
  };
  refused({{"a", torch::ones({1})}, {"a", torch::ones({1})}});
  refused({{"__metadata__", torch::ones({1})}});
  refused({{"a", torch::ones({1}, torch::kComplexDouble)}});
  refused({{"a", torch::Tensor()}});
  refused({{"a", torch::ones({2, 2}).to_sparse()}});
  refused({{"\xff", torch::ones({1})}});
  CHECK_THROWS_AS(etude::save_safetensors("/nonexistent/file", {}), etude::CheckpointError);
}

TEST_CASE("a file that lies about its sizes is refused before they are used") {
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

TEST_CASE("tensors that overlap, or leave holes, are refused") {
  const auto two = [](const char* a, const char* b) {
    return fmt::format(
        R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
        a, b);
  };
  CHECK(fault_of(file_of(two("[0,4]", "[4,8]"), 8)) == "it was read");
  CHECK(contains(fault_of(file_of(two("[0,4]", "[2,6]"), 6)), "tensor 'b'"));
  CHECK(contains(fault_of(file_of(two("[0,4]", "[0,4]"), 4)), "tensor 'b'"));
  CHECK(contains(fault_of(file_of(two("[5,9]", "[0,4]"), 9)), "tensor 'a'"));
}

TEST_CASE("a header that isn't what the format says is refused") {
  CHECK(contains(fault_of(file_of("[]", 0)), "begin with '{'"));
  CHECK(contains(fault_of(file_of(" {}", 0)), "begin with '{'"));
  CHECK(contains(fault_of(file_of("{", 0)), "header: "));
  CHECK(contains(fault_of(file_of("{} {}", 0)), "header: "));
  CHECK(contains(fault_of(file_of("{\"\xff\":{}}", 0)), "header: "));
  CHECK(contains(fault_of(file_of(R"({"a":1})", 0)), "tensor 'a'"));
  CHECK(contains(fault_of(file_of(R"({"a":{}})", 0)), "dtype is missing"));
  CHECK(contains(fault_of(file_of(R"({"a":{"dtype":"F32","shape":[0]}})", 0)), "data_offsets is missing"));
  CHECK(contains(fault_of(file_of(R"({"a":{"dtype":3,"shape":[0],"data_offsets":[0,0]}})", 0)), "dtype"));
  CHECK(contains(fault_of(file_of(R"({"a":{"dtype":"F4","shape":[0],"data_offsets":[0,0]}})", 0)), "no F4"));
  CHECK(contains(fault_of(file_of(R"({"__metadata__":[]})", 0)), "__metadata__"));
  CHECK(contains(fault_of(file_of(R"({"__metadata__":{"a":1}})", 0)), "'a' must be a string"));
  const std::string entry = R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  CHECK(contains(fault_of(file_of("{\"a\":" + entry + ",\"a\":" + entry + "}", 0)), "'a' is there twice"));
  CHECK(contains(
      fault_of(file_of(R"({"a":{"dtype":"F32","dtype":"F64","shape":[0],"data_offsets":[0,0]}})", 0)),
      "'dtype' is there twice"));
  CHECK(contains(fault_of(file_of("{\"a\":" + std::string(100'000, '['), 0)), "nested"));
  CHECK(fault_of(file_of("{}   ", 0)) == "it was read");
}

TEST_CASE("a BOOL that is neither 0 nor 1 is refused") {
  const std::string header = R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})";
  CHECK(contains(fault_of(with_length(header.size(), header + "\x02")), "BOOL"));
}

TEST_CASE("a file that isn't there is named") {
  CHECK_THROWS_WITH_AS(etude::load_safetensors("/nonexistent/file"),
                       "/nonexistent/file: can't be opened: No such file or directory",
                       etude::CheckpointError);
  CHECK_THROWS_AS(etude::load_safetensors(fs::temp_directory_path()), etude::CheckpointError);
}

TEST_CASE("cut anywhere, a file is refused") {
  const TempFile file;
  etude::save_safetensors(file.path, {{"a", torch::ones({3})}, {"b", torch::ones({2}, torch::kByte)}});
  const auto whole = file.text();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    CHECK(fault_of(whole.substr(0, length)) != "it was read");
  }
}

}  // namespace
