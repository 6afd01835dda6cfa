#include "etude/formats/token_windows.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/data/dataset.hpp"

namespace formats_token_windows_test {

using etude::ArgumentError;
using etude::Batch;
using etude::DataError;
using etude::Dataset;
using etude::TokenType;
using etude::TokenWindows;
using toy::contains;

struct File {
  template <class Token>
  explicit File(const std::vector<Token>& tokens) {
    toy::write_text(folder / "train.bin",
                    {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Token)});
  }
  TokenWindows windows(const etude::TokenWindowsOptions& options) const {
    return TokenWindows(folder / "train.bin", options);
  }
  toy::Folder folder;
};

Batch batch(const Dataset& dataset, const std::vector<std::int64_t>& indices) {
  return dataset.fetch(indices);
}

const std::vector<std::uint16_t> eight{10, 11, 12, 13, 14, 15, 16, 40'000};

TEST_CASE("consecutive windows predict each token once, and leave out what fills none") {
  const File file(eight);
  const Dataset dataset = file.windows({.context = 3});
  CHECK(dataset.size() == 2);
  const auto both = batch(dataset, {1, 0});
  CHECK(both.size == 2);
  CHECK(both.inputs.single().equal(torch::tensor({{13, 14, 15}, {10, 11, 12}}, torch::kLong)));
  CHECK(both.labels.single().equal(torch::tensor({{14, 15, 16}, {11, 12, 13}}, torch::kLong)));
}

TEST_CASE("the last label may be the last token of the file, above 32,767 too") {
  const File file(eight);
  const Dataset dataset = file.windows({.context = 7});
  CHECK(dataset.size() == 1);
  CHECK(batch(dataset, {0}).labels.single().equal(torch::tensor({{11, 12, 13, 14, 15, 16, 40'000}})));
}

TEST_CASE("a shorter stride overlaps windows") {
  const File file(eight);
  const Dataset dataset = file.windows({.context = 4, .stride = 2});
  CHECK(dataset.size() == 2);
  CHECK(batch(dataset, {1}).inputs.single().equal(torch::tensor({{12, 13, 14, 15}}, torch::kLong)));
  CHECK(Dataset(file.windows({.context = 4, .stride = 1})).size() == 4);
}

TEST_CASE("the fingerprint follows the tokens and the options") {
  const std::vector<std::uint16_t> text{1, 2, 3, 4, 5, 6, 7, 8, 9};
  auto other = text;
  other[8] = 7;
  const auto of = [](const auto& tokens, std::int64_t context) {
    return Dataset(File(tokens).windows({.context = context})).fingerprint();
  };
  CHECK(of(text, 2) == of(text, 2));
  CHECK(of(text, 2) != of(other, 2));
  CHECK(of(text, 2) != of(text, 4));
}

TEST_CASE("bytes of a text and 32-bit tokens") {
  const File text(std::vector<char>{'a', '\xff', 'b'});
  CHECK(batch(text.windows({.context = 2, .type = TokenType::uint8}), {0})
            .labels.single()
            .equal(torch::tensor({{255, 98}}, torch::kLong)));
  const File wide(std::vector<std::uint32_t>{1, 4'000'000'000});
  CHECK(batch(wide.windows({.context = 1, .type = TokenType::uint32}), {0})
            .labels.single()
            .equal(torch::full({1, 1}, 4'000'000'000, torch::kLong)));
}

TEST_CASE("the file may be removed while windows of it are in use, and copies for workers share it") {
  auto file = std::make_unique<File>(eight);
  const Dataset dataset = file->windows({.context = 3});
  file.reset();
  CHECK(batch(dataset.copy_for_worker(), {0}).inputs.single()[0][2].item<int>() == 12);
}

TEST_CASE("a token outside of the vocabulary is named with its place") {
  const File file(eight);
  const Dataset dataset = file.windows({.context = 3, .stride = 4, .vocab_size = 100});
  CHECK(batch(dataset, {0}).size == 1);
  const auto fault = toy::fault_of<DataError>([&] { batch(dataset, {0, 1}); });
  CHECK(contains(fault, "train.bin: token 40000 at place 7: must be less than vocab_size, 100"));
}

TEST_CASE("faults of files and options") {
  const File file(eight), odd(std::vector<char>(17));
  const auto fault = [&](const File& of, const etude::TokenWindowsOptions& options) {
    return toy::fault_of<DataError>([&] { of.windows(options); });
  };
  CHECK(contains(fault(odd, {.context = 1}), "has 17 bytes: must be a multiple of 2, the size of a uint16"));
  CHECK(contains(fault(file, {.context = 8}), "has 8 tokens: must be more than context, 8"));
  CHECK(contains(fault(File(std::vector<char>()), {.context = 1}), "has 0 tokens"));
  CHECK(contains(toy::fault_of<DataError>([] { TokenWindows("/nowhere", {.context = 1}); }), "/nowhere"));
  CHECK(contains(toy::fault_of<DataError>([&] { batch(file.windows({.context = 3}), {2}); }),
                 "example 2 was requested, but there are 2"));
  CHECK(toy::fault_of<ArgumentError>([&] { file.windows({.context = 0}); }) ==
        "context is 0: must be at least 1");
  CHECK(toy::fault_of<ArgumentError>([&] { file.windows({.context = 1, .stride = 0}); }) ==
        "stride is 0: must be at least 1");
}

}  // namespace formats_token_windows_test
