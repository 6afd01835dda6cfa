#include "etude/data/division.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/data/batch.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/data/mixing.hpp"
#include "etude/data/on_policy.hpp"

namespace data_division_test {

using etude::Batch;
using etude::RowsByIndex;
using etude::RowsByLength;
using toy::contains;
using toy::fault_of;

/// The boxes of four images, which have 2, 0, 1 and 3 boxes. Each row has the image's index and the box's
/// number.
torch::Tensor boxes() {
  return torch::tensor({{0., 10.}, {0., 11.}, {2., 12.}, {3., 13.}, {3., 14.}, {3., 15.}});
}

Batch images(etude::Tensors labels) { return {torch::arange(4), std::move(labels), 4}; }

TEST_CASE("rows with the index of their example go with it, in any order, and count from the part's first") {
  const auto batch = images({boxes(), RowsByIndex{}});
  const auto first = batch.slice(0, 2), second = batch.slice(2, 4);
  CHECK(first.size == 2);
  CHECK(torch::equal(first.labels[0], torch::tensor({{0., 10.}, {0., 11.}})));
  CHECK(torch::equal(second.inputs[0], torch::tensor({2, 3})));
  CHECK(torch::equal(second.labels[0], torch::tensor({{0., 12.}, {1., 13.}, {1., 14.}, {1., 15.}})));
  CHECK(torch::equal(second.slice(1, 2).labels[0], torch::tensor({{0., 13.}, {0., 14.}, {0., 15.}})));
  CHECK(torch::equal(batch.labels[0], boxes()));

  const auto mixed = images({boxes().flip(0).flip(1), RowsByIndex{.column = 1}});
  CHECK(torch::equal(mixed.slice(2, 3).labels[0], torch::tensor({{12., 0.}})));
  const auto alone = images({torch::tensor({3, 0, 2}), RowsByIndex{}});
  CHECK(torch::equal(alone.slice(1, 4).labels[0], torch::tensor({2, 1})));
}

TEST_CASE("rows by length, offsets and what all examples share divide too") {
  etude::Tensors labels(
      {torch::arange(6), torch::tensor({0, 2, 2, 3}), torch::tensor({0, 2, 2, 3, 6}), boxes()},
      {"targets", "starts", "bounds", "weights"});
  labels.set_division("targets", RowsByLength{{2, 0, 1, 3}});
  labels.set_division("starts", etude::RowOffsets{});
  labels.set_division(2, etude::RowOffsets{});
  labels.set_division("weights", etude::SharedByExamples{});
  const auto part = images(labels).slice(1, 4);
  CHECK(torch::equal(part.labels["targets"], torch::tensor({2, 3, 4, 5})));
  CHECK(torch::equal(part.labels["starts"], torch::tensor({0, 0, 1})));
  CHECK(torch::equal(part.labels["bounds"], torch::tensor({0, 0, 1, 4})));
  CHECK(part.labels["weights"].is_same(labels["weights"]));
  CHECK(torch::equal(part.slice(1, 2).labels["targets"], torch::tensor({2})));
  CHECK_THROWS_AS(labels.set_division("misspelt", RowsByIndex{}), etude::DataError);
}

TEST_CASE("a tensor keeps its division on another device, in another type, and as a label") {
  Batch batch{{{torch::arange(4), boxes()}, {"x", "labels"}}, {}, 4};
  batch.inputs.set_division("labels", RowsByIndex{});
  const auto moved = etude::split_labels(batch, {"labels"}).to(torch::kCPU);
  CHECK(moved.labels.names() == std::vector<std::string>{"labels"});
  CHECK(moved.slice(0, 1).labels[0].size(0) == 2);
  CHECK(moved.inputs.is_row_per_example(0));
}

TEST_CASE(
    "a tensor with other rows that doesn't say how they divide is refused, and so is a wrong division") {
  CHECK(contains(
      fault_of<etude::DataError>([] { (void)images(boxes()).slice(0, 2); }),
      "a batch is divided, and its label 0 is float32 [6, 2] in a batch of 4 examples: its first dimension "
      "must be the number of examples, or it must say how its rows divide (etude::RowsByIndex"));
  CHECK(contains(fault_of<etude::DataError>([] {
                   images({{"boxes", boxes()}}).check_divisible("training: ");
                 }),
                 "training: label 'boxes' is float32 [6, 2]"));
  CHECK(contains(fault_of<etude::DataError>([] { (void)images(torch::tensor(1)).slice(0, 2); }),
                 "label 0 is int64 []"));
  const auto wrong = [](etude::Division division) {
    return fault_of<etude::DataError>([&] { (void)images({boxes(), division}).slice(0, 2); });
  };
  CHECK(contains(wrong(RowsByLength{{2, 0, 1, 2}}), "its RowsByLength has 4 lengths that sum to 5"));
  CHECK(contains(wrong(RowsByLength{{3, 3}}), "its RowsByLength has 2 lengths that sum to 6"));
  CHECK(contains(wrong(RowsByIndex{.column = 2}), "it has no column 2 for its RowsByIndex"));
  CHECK(contains(wrong(RowsByIndex{.column = 1}),
                 "the examples of the rows are from 10 to 15: must be from 0 to 3"));
  CHECK(contains(wrong(etude::RowOffsets{}), "its RowOffsets must be [4] or [5]"));
}

TEST_CASE("a batch is made of tensors that divide") {
  CHECK(etude::make_batch(torch::arange(4), {boxes(), RowsByIndex{}}).size == 4);
  CHECK(etude::make_batch({boxes(), RowsByLength{{2, 0, 1, 3}}}, {}).size == 4);
  CHECK(contains(
      fault_of<etude::DataError>([] { etude::make_batch(torch::arange(4), boxes()); }),
      "every tensor's first dimension must be the number of examples, unless it says how its rows divide"));
  CHECK(contains(fault_of<etude::DataError>([] {
                   etude::make_batch(torch::arange(4), {boxes(), RowsByLength{{2}}});
                 }),
                 "RowsByLength"));
  CHECK(contains(fault_of<etude::DataError>([] {
                   etude::make_batch({boxes(), RowsByIndex{}}, {});
                 }),
                 "no tensor says how many examples there are"));
}

TEST_CASE("what takes one row for each example refuses other rows") {
  const auto rows = torch::rand({4, 3});
  CHECK(contains(
      fault_of<etude::DataError>([&] {
        etude::mix_up({rows, torch::rand({6, 2}), 4}, {});
      }),
      "each example is mixed with another, and label 0 is float32 [6, 2] in a batch of 4 examples: must "
      "have one row for each example"));
  CHECK(contains(fault_of<etude::DataError>([&] {
                   etude::cut_mix({torch::rand({4, 1, 5, 5}), torch::rand({6, 2}), 4}, {});
                 }),
                 "must have one row for each example"));
  CHECK(contains(fault_of<etude::DataError>([&] {
                   etude::Dataset(rows, {boxes(), RowsByIndex{}});
                 }),
                 "in a dataset of tensors, label 0"));
}

/// Images with 2, 0, 1, 3, 2, 0, ... boxes.
struct Stream {
  std::optional<etude::Example> next() {
    if (at == 6) return std::nullopt;
    const auto count = std::vector<std::int64_t>{2, 0, 1, 3}[static_cast<std::size_t>(at % 4)];
    const auto image = at++;
    return etude::Example{torch::tensor(image), torch::full({count, 1}, image)};
  }
  void reset() { at = 0; }
  std::int64_t at = 0;
};

Batch collate(const std::vector<etude::Example>& examples, bool says_how) {
  std::vector<torch::Tensor> all, rows;
  for (const auto& example : examples) {
    const auto& each = example.labels[0];
    rows.push_back(torch::cat({torch::full({each.size(0), 1}, std::ssize(all)), each}, 1));
    all.push_back(example.inputs[0]);
  }
  Batch batch{torch::stack(all), torch::cat(rows), std::ssize(examples)};
  if (says_how) batch.labels.set_division(0, RowsByIndex{});
  return batch;
}

TEST_CASE("several processes divide the batches of a stream, each with the boxes of its images") {
  for (const std::int64_t rank : {0, 1})
    for (const bool says_how : {true, false}) {
      const etude::DataLoader loader(
          Stream{}, {.batch_size = 2, .part = {rank, 2}, .collator = [=](const auto& examples) {
                       return collate(examples, says_how);
                     }});
      auto batches = loader.begin_epoch(0);
      if (!says_how) {
        CHECK(contains(fault_of<etude::DataError>([&] { batches.next(); }),
                       "the processes divide each batch of a stream, and its label 0 is int64 [6, 2]"));
        continue;
      }
      std::vector<std::int64_t> image_of_boxes;
      while (const auto batch = batches.next())
        for (std::int64_t i = 0; i < batch->labels[0].size(0); ++i) {
          const auto row = batch->labels[0][i];
          CHECK(batch->inputs[0][row[0].item<std::int64_t>()].item<std::int64_t>() ==
                row[1].item<std::int64_t>());
          image_of_boxes.push_back(row[1].item<std::int64_t>());
        }
      // Each process has half of images 0 to 3, and then half of 4 and 5.
      CHECK(image_of_boxes ==
            (rank == 0 ? std::vector<std::int64_t>{0, 0, 4, 4} : std::vector<std::int64_t>{2, 3, 3, 3}));
    }
}

}  // namespace data_division_test
