#include "etude/formats/torch_file.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/growth.hpp"
#include "common/pickle_bytes.hpp"
#include "common/zip_bytes.hpp"
#include "etude/base/error.hpp"

namespace formats_torch_file_test {

using toy::contains;
using namespace std::string_literals;
namespace pickled = toy::pickled;
using Strings = std::vector<std::string>;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// A file with this pickle and these storages: "0", "1", ...
etude::TorchFile load(const std::string& pickle, const Strings& storages, std::string_view key = {}) {
  std::vector<toy::ZipEntry> entries = {{"m/data.pkl", pickled::file(pickle)}};
  for (std::size_t i = 0; i < storages.size(); ++i)
    entries.push_back({"m/data/" + std::to_string(i), storages[i]});
  const toy::Folder folder;
  toy::write_text(folder / "x.pt", toy::zip_bytes(entries));
  return etude::load_torch_file(folder / "x.pt", key);
}

std::string fault_of(const std::string& pickle, const Strings& storages) {
  return toy::fault_of<etude::CheckpointError>([&] { load(pickle, storages); });
}

TEST_CASE("tensors are read with their values, offsets and strides") {
  const auto file =
      load(pickled::dict({{"w", pickled::tensor({.count = 6, .sizes = {3, 2}, .strides = {1, 3}})},
                          {"last", pickled::tensor({.count = 6, .offset = 5, .sizes = {}, .strides = {}})},
                          {"none", pickled::tensor({.count = 6, .sizes = {0, 3}, .strides = {3, 1}})},
                          {"again", pickled::tensor({.count = 6, .sizes = {2, 6}, .strides = {0, 1}})},
                          {"epoch", "K\3"}}),
           {bytes_of<float>({0, 1, 2, 3, 4, 5})});
  REQUIRE(file.tensors.size() == 4);
  CHECK(file.tensors[0].first == "w");
  CHECK(file.tensors[0].second.equal(torch::tensor({{0.f, 3.f}, {1.f, 4.f}, {2.f, 5.f}})));
  CHECK(file.tensors[0].second.strides() == std::vector<std::int64_t>{1, 3});
  CHECK_FALSE(file.tensors[0].second.requires_grad());
  CHECK(file.tensors[1].second.dim() == 0);
  CHECK(file.tensors[1].second.item<float>() == 5);
  CHECK(file.tensors[2].second.sizes() == std::vector<std::int64_t>{0, 3});
  CHECK(file.tensors[3].second.sum().item<float>() == 30);
  CHECK(file.skipped == Strings{"epoch"});
}

TEST_CASE("every storage's dtype is LibTorch's") {
  const auto value_of = [](const std::string& type, const std::string& bytes) {
    const auto file = load(
        pickled::dict({{"w", pickled::tensor({.type = type, .count = 1, .sizes = {1}, .strides = {1}})}}),
        {bytes});
    return file.tensors.at(0).second;
  };
  CHECK(value_of("FloatStorage", bytes_of<float>({1.5f})).equal(torch::tensor({1.5f})));
  CHECK(value_of("DoubleStorage", bytes_of<double>({1.1})).equal(torch::tensor({1.1}, torch::kDouble)));
  CHECK(value_of("HalfStorage", "\0\x3e"s).equal(torch::tensor({1.5f}).to(torch::kHalf)));
  CHECK(value_of("BFloat16Storage", "\xc0\x3f").equal(torch::tensor({1.5f}).to(torch::kBFloat16)));
  CHECK(value_of("BoolStorage", "\1").equal(torch::tensor({true})));
  CHECK(value_of("ByteStorage", "\xff").equal(torch::tensor({255}, torch::kByte)));
  CHECK(value_of("CharStorage", "\xff").equal(torch::tensor({-1}, torch::kChar)));
  CHECK(value_of("ShortStorage", "\xfe\xff").equal(torch::tensor({-2}, torch::kShort)));
  CHECK(value_of("IntStorage", bytes_of<std::int32_t>({-3})).equal(torch::tensor({-3}, torch::kInt)));
  CHECK(value_of("LongStorage", bytes_of<std::int64_t>({-4})).equal(torch::tensor({-4}, torch::kLong)));
  const auto complex = value_of("ComplexFloatStorage", bytes_of<float>({1, 2}));
  CHECK(torch::view_as_real(complex).equal(torch::tensor({{1.f, 2.f}})));
  const auto wide = value_of("ComplexDoubleStorage", bytes_of<double>({1, 2}));
  CHECK(torch::view_as_real(wide).equal(torch::tensor({{1., 2.}}, torch::kDouble)));
}

TEST_CASE("a tensor's dtype is LibTorch's, or refused if LibTorch has none") {
  const auto typed = [](const std::string& dtype, std::int64_t bytes) {
    const auto storage =
        pickled::tuple({pickled::text("storage"), pickled::global("torch.storage", "UntypedStorage"),
                        pickled::text("0"), pickled::text("cpu"), pickled::integer(bytes)}) +
        "Q";
    return pickled::dict(
        {{"w", pickled::call(pickled::global("torch._utils", "_rebuild_tensor_v3"),
                             {storage, pickled::integer(0), pickled::integers({1}), pickled::integers({1}),
                              pickled::boolean(false), "}", pickled::global("torch", dtype)})}});
  };
  const auto half = load(typed("complex32", 4), {"\0\x3c\0\x40"s}).tensors.at(0).second;
  CHECK((half.scalar_type() == torch::kComplexHalf));
  CHECK(torch::view_as_real(half).to(torch::kFloat).equal(torch::tensor({{1.f, 2.f}})));
  // 1.5 in eight bits: exponent bias 7, three bits of mantissa.
  std::string dtype;
  try {
    dtype = c10::toString(load(typed("float8_e4m3fn", 1), {"\x3c"}).tensors.at(0).second.scalar_type());
  } catch (const etude::CheckpointError& error) {
    dtype = error.what();
  }
  CHECK(
      (dtype == "Float8_e4m3fn" || contains(dtype, "tensor 'w': dtype: this LibTorch has no Float8_e4m3fn")));
}

TEST_CASE("tensors that share memory still do") {
  const auto w = pickled::tensor({.count = 4, .sizes = {2}, .strides = {1}});
  const auto rest = pickled::tensor({.count = 4, .offset = 1, .sizes = {3}, .strides = {1}});
  const auto other = pickled::tensor({.key = "1", .count = 4, .sizes = {2}, .strides = {1}});
  const auto ones = bytes_of<float>({1, 1, 1, 1});
  const auto file =
      load(pickled::dict({{"w", w}, {"tied", w}, {"rest", rest}, {"other", other}}), {ones, ones});
  file.tensors[0].second.zero_();
  CHECK(file.tensors[1].second.equal(torch::zeros({2})));
  CHECK(file.tensors[2].second.equal(torch::tensor({0.f, 1.f, 1.f})));
  CHECK(file.tensors[3].second.equal(torch::ones({2})));
}

TEST_CASE("lazily conjugated or negated tensors have their values") {
  const auto lazy = [](const char* which) {
    const auto hooks = pickled::call(pickled::global("collections", "OrderedDict"), {});
    const auto metadata = pickled::dict({{which, pickled::boolean(true)}});
    return load(pickled::dict(
                    {{"w", pickled::call(pickled::global("torch._utils", "_rebuild_tensor_v2"),
                                         {pickled::storage("ComplexFloatStorage", "0", 1),
                                          pickled::integer(0), pickled::integers({1}), pickled::integers({1}),
                                          pickled::boolean(false), hooks, metadata})}}),
                {bytes_of<float>({1, 2})})
        .tensors.at(0)
        .second;
  };
  CHECK(torch::view_as_real(lazy("conj").resolve_conj()).equal(torch::tensor({{1.f, -2.f}})));
  CHECK(torch::view_as_real(lazy("neg").resolve_neg()).equal(torch::tensor({{-1.f, -2.f}})));
}

TEST_CASE("a bool that is neither 0 nor 1 is refused") {
  const auto pickle = pickled::dict(
      {{"w", pickled::tensor({.type = "BoolStorage", .count = 2, .sizes = {1}, .strides = {1}})}});
  CHECK(fault_of(pickle, {"\1\0"s}) == "nothing was thrown");
  CHECK(contains(fault_of(pickle, {"\1\2"}), "tensor 'w': a bool must be 0 or 1"));
}

TEST_CASE("many tensors of one storage of bools are read in linear time") {
  const auto growth = toy::growth(300, [](int n) {
    std::vector<std::pair<std::string, std::string>> items;
    for (int i = 0; i < n; ++i)
      items.emplace_back(
          std::to_string(i),
          pickled::tensor({.type = "BoolStorage", .count = 6000 * n, .sizes = {1}, .strides = {1}}));
    const auto file = load(pickled::dict(items), {std::string(static_cast<std::size_t>(6000 * n), '\1')});
    CHECK(file.tensors.size() == static_cast<std::size_t>(n));
  });
  CHECK(growth < 3.5);
}

TEST_CASE("a storage is read only if a wanted tensor uses it, and errors give its file name") {
  const auto w = pickled::dict({{"w", pickled::tensor()}});
  const auto lost = pickled::dict({{"w", pickled::tensor({.key = "9"})}});
  const auto both = pickled::dict({{"model", w}, {"ema", lost}});
  const auto storage = bytes_of<float>({1, 2, 3, 4});
  CHECK(load(both, {storage}, "model").tensors.at(0).second.equal(torch::tensor({{1.f, 2.f}, {3.f, 4.f}})));
  CHECK(contains(fault_of(lost, {storage}), "x.pt: it has no 'data/9'"));
}

}  // namespace formats_torch_file_test
