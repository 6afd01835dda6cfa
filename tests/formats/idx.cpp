#include "etude/formats/idx.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <filesystem>
#include <limits>
#include <string>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "etude/formats/idx_header.hpp"

namespace formats_idx_test {

using etude::DataError;
using toy::contains;

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

torch::Tensor load(const std::string& content) {
  const toy::Folder folder;
  toy::write_text(folder / "x.idx", content);
  return etude::load_idx(folder / "x.idx");
}

std::string fault(const std::string& content) {
  return toy::fault_of<DataError>([&] { etude::read_idx_header(std::as_bytes(std::span(content))); });
}

TEST_CASE("MNIST's labels: bytes, one dimension") {
  const auto labels = load(bytes({0, 0, 8, 1, 0, 0, 0, 4, 5, 0, 4, 255}));
  CHECK(labels.equal(torch::tensor({5, 0, 4, 255}, torch::kByte)));
}

TEST_CASE("MNIST's images: bytes, examples by rows by columns") {
  const auto images = load(bytes({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6}));
  CHECK(images.equal(torch::tensor({1, 2, 3, 4, 5, 6}, torch::kByte).reshape({2, 1, 3})));
}

TEST_CASE("sizes and items of each dtype are big-endian") {
  const auto of = [](int code, const std::string& items) {
    return load(bytes({0, 0, code, 1, 0, 0, 0, 2}) + items);
  };
  CHECK(of(0x09, bytes({0xff, 0x7f})).equal(torch::tensor({-1, 127}, torch::kChar)));
  CHECK(of(0x0b, bytes({0x01, 0x02, 0xff, 0xfe})).equal(torch::tensor({258, -2}, torch::kShort)));
  CHECK(of(0x0c, bytes({0x01, 0x02, 0x03, 0x04, 0x80, 0, 0, 0}))
            .equal(torch::tensor({0x01020304, std::numeric_limits<int>::min()}, torch::kInt)));
  CHECK(of(0x0d, bytes({0x3f, 0xc0, 0, 0, 0xc0, 0x49, 0x0f, 0xdb}))
            .equal(torch::tensor({1.5f, -3.14159274f}, torch::kFloat)));
  CHECK(of(0x0e, bytes({0x40, 0x09, 0x21, 0xfb, 0x54, 0x44, 0x2d, 0x18, 0xbf, 0xf0, 0, 0, 0, 0, 0, 0}))
            .equal(torch::tensor({3.141592653589793, -1.0}, torch::kDouble)));
  CHECK(load(bytes({0, 0, 8, 1, 0, 0, 1, 2}) + std::string(258, 'x')).size(0) == 258);
}

TEST_CASE("a tensor of bytes is a view of the file, which outlives its name") {
  const toy::Folder folder;
  toy::write_text(folder / "x.idx", bytes({0, 0, 8, 1, 0, 0, 0, 2, 7, 9}));
  auto tensor = etude::load_idx(folder / "x.idx");
  CHECK(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 4096 == 8);
  tensor.zero_();
  CHECK(etude::load_idx(folder / "x.idx").equal(torch::tensor({7, 9}, torch::kByte)));
}

TEST_CASE("an array may be empty or have no dimensions") {
  CHECK(load(bytes({0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 0, 5})).sizes() == std::vector<std::int64_t>{0, 5});
  CHECK(load(bytes({0, 0, 0x0c, 0, 0, 0, 1, 0})).item<int>() == 256);
}

TEST_CASE("other files are refused, with what is allowed") {
  CHECK(fault("") == "it has 0 bytes, too few for an IDX file");
  CHECK(fault(bytes({0x1f, 0x8b, 8, 0, 1, 2})) ==
        "it is compressed with gzip: must be decompressed first (gunzip)");
  CHECK(fault(bytes({0, 1, 8, 1})) == "it isn't an IDX file: its first two bytes are 0x00 0x01, must be 0");
  CHECK(fault(bytes({0, 0, 0x0a, 1, 0, 0, 0, 0})) ==
        "dtype is 0x0a: must be one of 0x08 (Byte), 0x09 (Char), 0x0b (Short), 0x0c (Int), 0x0d (Float), "
        "0x0e (Double)");
  CHECK(fault(bytes({0, 0, 8, 65}) + std::string(260, '\0')) ==
        "number of dimensions is 65: must be at most 64");
  CHECK(fault(bytes({0, 0, 8, 2, 0, 0, 0, 1})) == "its header is truncated, at 8 of 12 bytes");
}

TEST_CASE("sizes must match the file, and can't overflow") {
  CHECK(fault(bytes({0, 0, 8, 1, 0, 0, 0, 4, 1, 2, 3})) ==
        "shape (4) of Byte needs 4 bytes, but 3 follow the header");
  CHECK(contains(fault(bytes({0, 0, 8, 1, 0, 0, 0, 1, 1, 2})), "needs 1 bytes, but 2 follow"));
  CHECK(contains(fault(bytes({0, 0, 8, 1, 255, 255, 255, 255})), "needs 4294967295 bytes, but 0 follow"));
  CHECK(contains(fault(bytes({0, 0, 8, 3}) + std::string(12, '\xff')), "it is too large"));
  CHECK(contains(fault(bytes({0, 0, 14, 3, 0, 0, 0, 0}) + std::string(8, '\xff')), "it is too large"));
}

TEST_CASE("errors name the file") {
  const toy::Folder folder;
  const auto path = folder / "x.idx";
  const auto of_file = [&] { return toy::fault_of<DataError>([&] { etude::load_idx(path); }); };
  CHECK(contains(of_file(), path.string() + " can't be read"));
  toy::write_text(path, "no IDX file");
  CHECK(contains(of_file(), path.string() + ": it isn't an IDX file"));
}

}  // namespace formats_idx_test
