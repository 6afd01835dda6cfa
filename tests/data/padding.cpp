#include "etude/data/padding.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <map>
#include <string>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/data/data_loader.hpp"

namespace data_padding_test {

using etude::ArgumentError;
using etude::DataError;
using etude::Example;
using etude::PaddingCollator;
using etude::Tensors;
using toy::contains;
using Sizes = std::vector<std::int64_t>;

torch::Tensor whole(std::vector<std::int64_t> values) { return torch::tensor(values); }
torch::Tensor table(std::vector<std::int64_t> values, Sizes sizes) {
  return torch::tensor(values).reshape(sizes);
}

Example tokens(std::vector<std::int64_t> ids, std::vector<std::int64_t> labels) {
  return {Tensors({whole(ids)}, {"input_ids"}), Tensors({whole(labels)}, {"labels"})};
}

TEST_CASE(
    "inputs and labels are padded to the longest of the batch, labels with the value that losses ignore") {
  const auto batch = PaddingCollator()({tokens({5, 6, 7}, {1, 2, 3}), tokens({8}, {4})});
  CHECK(batch.size == 2);
  CHECK(batch.inputs.at("input_ids").equal(table({5, 6, 7, 8, 0, 0}, {2, 3})));
  CHECK(batch.labels.at("labels").equal(table({1, 2, 3, 4, -100, -100}, {2, 3})));
}

TEST_CASE("the mask marks padding, on either side, up to a multiple") {
  PaddingCollator collator{.pad_to_multiple_of = 4, .attention_mask = "attention_mask"};
  collator.values["input_ids"] = 9;
  auto batch = collator({tokens({5, 6, 7}, {1, 2, 3}), tokens({8}, {4})});
  CHECK(batch.inputs.at("input_ids").equal(table({5, 6, 7, 9, 8, 9, 9, 9}, {2, 4})));
  CHECK(batch.inputs.at("attention_mask").equal(table({1, 1, 1, 0, 1, 0, 0, 0}, {2, 4})));
  CHECK(batch.labels[0].equal(table({1, 2, 3, -100, 4, -100, -100, -100}, {2, 4})));

  collator.side = etude::PaddingSide::left;
  batch = collator({tokens({5, 6, 7}, {1, 2, 3}), tokens({8}, {4})});
  CHECK(batch.inputs.at("input_ids").equal(table({9, 5, 6, 7, 9, 9, 9, 8}, {2, 4})));
  CHECK(batch.inputs.at("attention_mask").equal(table({0, 1, 1, 1, 0, 0, 0, 1}, {2, 4})));
}

TEST_CASE("an existing mask is padded with 0 and not recreated") {
  const auto example = [](std::vector<std::int64_t> ids, std::vector<std::int64_t> mask) {
    return Example{Tensors({whole(ids), whole(mask)}, {"input_ids", "attention_mask"}), {}};
  };
  const auto batch = PaddingCollator{
      .input_value = 0, .attention_mask = "attention_mask"}({example({5, 6}, {0, 1}), example({8}, {1})});
  CHECK(batch.inputs.size() == 2);
  CHECK(batch.inputs.at("attention_mask").equal(table({0, 1, 1, 0}, {2, 2})));
}

TEST_CASE("the mask of unnamed inputs is the last input") {
  const auto batch = PaddingCollator{.attention_mask = "mask"}({{whole({1}), {}}, {whole({2, 3}), {}}});
  CHECK(batch.inputs.names().empty());
  CHECK(batch.inputs[0].equal(table({1, 0, 2, 3}, {2, 2})));
  CHECK(batch.inputs[1].equal(table({1, 0, 1, 1}, {2, 2})));
}

TEST_CASE("labels among the inputs of an unlabelled example are padded as labels") {
  const auto example = [](std::vector<std::int64_t> ids) {
    return Example{Tensors({whole(ids), whole(ids)}, {"input_ids", "labels"}), {}};
  };
  const auto batch = PaddingCollator()({example({5, 6}), example({8})});
  CHECK(batch.inputs.at("labels").equal(table({5, 6, 8, -100}, {2, 2})));
}

TEST_CASE("only the first dimension is padded, and scalars are left alone") {
  const auto batch = PaddingCollator{.input_value = -1}(
      {{torch::ones({1, 2}), whole({3}).squeeze(0)}, {torch::ones({2, 2}), whole({4}).squeeze(0)}});
  CHECK(batch.inputs[0].equal(torch::tensor({1.f, 1.f, -1.f, -1.f, 1.f, 1.f, 1.f, 1.f}).reshape({2, 2, 2})));
  CHECK(batch.labels[0].equal(whole({3, 4})));
}

TEST_CASE("only the named tensors are padded") {
  const PaddingCollator collator{.names = {"input_ids"}, .pad_to_multiple_of = 4};
  const auto batch = collator({tokens({5}, {1, 2}), tokens({8, 9}, {3, 4})});
  CHECK(batch.inputs[0].sizes() == Sizes{2, 4});
  CHECK(batch.labels[0].sizes() == Sizes{2, 2});
  CHECK(contains(
      toy::fault_of<DataError>([&] {
        collator({tokens({5}, {1}), tokens({8, 9}, {3, 4})});
      }),
      "label 'labels' must be the same for all examples of a batch: int64 [1] in example 0, int64 [2]"));
}

TEST_CASE("an example without tokens is all padding") {
  const auto batch = PaddingCollator{.attention_mask = "m"}({tokens({}, {}), tokens({8}, {4})});
  CHECK(batch.inputs[0].equal(table({0, 8}, {2, 1})));
  CHECK(batch.inputs.at("m").equal(table({0, 1}, {2, 1})));
}

TEST_CASE("a padding value that the dtype can't represent is refused when it is needed") {
  const auto fault = [](torch::ScalarType dtype, double value) {
    return toy::fault_of<DataError>([&] {
      PaddingCollator{.input_value = value}({{torch::ones({1}, dtype), {}}, {torch::ones({2}, dtype), {}}});
    });
  };
  CHECK(fault(torch::kByte, -100) == "input 0 can't be padded with -100: uint8 can't hold it");
  CHECK(contains(fault(torch::kByte, 256), "can't be padded"));
  CHECK(fault(torch::kByte, 255) == "nothing was thrown");
  CHECK(contains(fault(torch::kChar, 128), "can't be padded"));
  CHECK(fault(torch::kChar, -128) == "nothing was thrown");
  CHECK(contains(fault(torch::kLong, 0.5), "can't be padded"));
  CHECK(contains(fault(torch::kBool, 2), "can't be padded"));
  CHECK(fault(torch::kHalf, 0.5) == "nothing was thrown");
  // Nothing to pad.
  CHECK(PaddingCollator{.input_value = -1}({{torch::ones({1}, torch::kByte), {}}}).size == 1);
}

TEST_CASE("examples that differ in other ways are refused by name") {
  const auto fault = [](Example a, Example b) {
    return toy::fault_of<DataError>([&] { PaddingCollator()({std::move(a), std::move(b)}); });
  };
  CHECK(fault({torch::ones({1, 2}), {}}, {torch::ones({2, 3}), {}}) ==
        "input 0 must be the same for all examples of a batch, except for its first dimension, which is "
        "padded: "
        "float32 [1, 2] in the first, float32 [2, 3] in number 2 of the batch");
  CHECK(contains(fault({torch::ones({1}), {}}, {whole({1}), {}}), "float32 [1] in the first, int64 [1]"));
  CHECK(contains(fault({torch::ones({1}), {}}, {torch::ones({}), {}}), "float32 [] in number 2"));
  CHECK(
      contains(fault(tokens({1}, {1}), {Tensors({whole({1})}, {"ids"}), {}}), "the inputs must be the same"));
  CHECK(contains(toy::fault_of<DataError>([] { PaddingCollator()({}); }), "no examples"));
  CHECK(contains(
      toy::fault_of<ArgumentError>([] { PaddingCollator{.pad_to_multiple_of = 0}({tokens({1}, {1})}); }),
      "pad_to_multiple_of is 0: must be at least 1"));
}

TEST_CASE("a loader with any number of workers gives the same padded batches") {
  std::vector<std::map<std::string, torch::Tensor>> examples;
  for (std::int64_t i = 0; i < 20; ++i) {
    const auto ids = torch::arange(1, 2 + i * 7 % 5);
    examples.push_back({{"input_ids", ids}, {"labels", ids * 10}});
  }
  const auto batches = [&](int workers) {
    etude::DataLoader loader(examples, {.batch_size = 3,
                                        .shuffle = true,
                                        .num_workers = workers,
                                        .collator = PaddingCollator{.attention_mask = "attention_mask"}});
    std::vector<torch::Tensor> tensors;
    auto stream = loader.begin_epoch(0);
    while (const auto batch = stream.next()) {
      const auto& ids = batch->inputs.at("input_ids");
      CHECK(batch->inputs.at("attention_mask").equal(ids.ne(0).to(torch::kLong)));
      CHECK(batch->labels.at("labels").equal(torch::where(ids.ne(0), ids * 10, torch::full_like(ids, -100))));
      tensors.push_back(ids);
    }
    return tensors;
  };
  const auto expected = batches(0);
  CHECK(expected.size() == 7);
  for (const int workers : {1, 4}) {
    const auto found = batches(workers);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i].equal(expected[i]));
  }
}

}  // namespace data_padding_test
