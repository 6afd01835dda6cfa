#include "etude/data/concatenated.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/data/failed_example.hpp"
#include "etude/data/padding.hpp"
#include "etude/data/parallel_streams.hpp"

namespace data_concatenated_test {

using Numbers = std::vector<std::int64_t>;

Numbers numbers_of(const torch::Tensor& tensor) {
  const auto flat = tensor.to(torch::kLong).flatten().contiguous();
  return {flat.data_ptr<std::int64_t>(), flat.data_ptr<std::int64_t>() + flat.numel()};
}

etude::Dataset tensors(std::int64_t first, std::int64_t count) {
  const auto x = torch::arange(first, first + count);
  return {torch::stack({x, x * 10}, 1), x + 1000};
}

/// The example i is {first + i, 10 (first + i)}, with the label first + i + 1000.
struct Getter {
  std::int64_t first, count;
  std::int64_t size() const { return count; }
  std::pair<torch::Tensor, std::int64_t> get(std::int64_t i) const {
    return {torch::tensor({first + i, 10 * (first + i)}), first + i + 1000};
  }
};

TEST_CASE("sizes add up, and a batch may have examples of several datasets, in any order") {
  const std::vector<std::pair<const char*, std::vector<etude::Dataset>>> mixtures = {
      {"tensors", {tensors(0, 3), tensors(3, 4), tensors(7, 2)}},
      {"examples", {Getter{0, 3}, Getter{3, 4}, Getter{7, 2}}},
      {"both", {tensors(0, 3), Getter{3, 4}, tensors(7, 2)}},
      {"nested", {etude::concatenated({Getter{0, 1}, tensors(1, 2)}), tensors(3, 6)}}};
  for (const auto& [kind, datasets] : mixtures) {
    CAPTURE(kind);
    const auto all = etude::concatenated(datasets);
    CHECK(all.size() == 9);
    for (const auto& dataset : {all, all.copy_for_worker()}) {
      for (const auto& indices : {Numbers{8, 0, 5, 2, 3, 7}, Numbers{4, 5}, Numbers{0, 0, 8}}) {
        const auto batch = dataset.fetch(indices);
        CHECK(batch.size == std::ssize(indices));
        const auto expected = torch::tensor(indices);
        CHECK(torch::equal(batch.inputs[0], torch::stack({expected, expected * 10}, 1)));
        CHECK(torch::equal(batch.labels[0], expected + 1000));
      }
    }
  }
}

TEST_CASE("a collator gets the examples of all datasets, in the order of the batch") {
  const auto all = etude::concatenated({tensors(0, 3), Getter{3, 4}});
  Numbers seen;
  const auto batch = all.fetch(Numbers{6, 1, 3}, [&](std::vector<etude::Example> examples) {
    for (const auto& example : examples) seen.push_back(example.labels[0].item<std::int64_t>());
    return etude::default_data_collator(examples);
  });
  CHECK(seen == Numbers{1006, 1001, 1003});
  CHECK(numbers_of(batch.labels[0]) == seen);
}

TEST_CASE("a data loader with workers goes over all of them once") {
  const auto all = etude::concatenated({tensors(0, 5), Getter{5, 6}});
  for (const int workers : {0, 2}) {
    const etude::DataLoader loader(all, {.batch_size = 4, .shuffle = true, .num_workers = workers});
    Numbers labels;
    for (auto epoch = loader.begin_epoch(0); const auto batch = epoch.next();)
      for (const auto label : numbers_of(batch->labels[0])) labels.push_back(label - 1000);
    std::ranges::sort(labels);
    CHECK(labels == Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  }
}

/// Each example is a random number.
struct Random {
  std::int64_t size() const { return 2; }
  torch::Tensor get(std::int64_t, torch::Generator& generator) const { return torch::rand({}, generator); }
};

TEST_CASE("examples of the same number in different datasets draw different random numbers, reproducibly") {
  const auto all = etude::concatenated({Random(), Random()});
  const auto numbers = all.fetch(Numbers{0, 1, 2, 3}, {}, 5).inputs[0];
  CHECK(numbers[0].item<float>() != numbers[2].item<float>());
  CHECK(torch::equal(numbers, all.fetch(Numbers{3, 2, 1, 0}, {}, 5).inputs[0].flip(0)));
}

TEST_CASE("datasets whose fields differ are refused with a batch that has both") {
  const auto fault = [](etude::Dataset second) {
    const auto all = etude::concatenated({tensors(0, 3), std::move(second)});
    CHECK(all.fetch(Numbers{1, 2}).size == 2);
    return toy::fault_of<etude::DataError>([&] { all.fetch(Numbers{2, 3}); });
  };
  CHECK(
      fault({torch::zeros({2, 5}, torch::kLong), torch::zeros({2}, torch::kLong)}) ==
      "the inputs must be the same in all concatenated datasets: int64 [2, 2] in a batch of 2, int64 [1, 5] "
      "in the rows of dataset 1");
  CHECK(toy::contains(fault(torch::zeros({2, 2}, torch::kLong)), "the labels must be the same"));
  CHECK(toy::contains(fault({torch::zeros({2, 2}), torch::zeros({2}, torch::kLong)}),
                      "the inputs must be the same"));

  const auto lengths = etude::concatenated({std::vector<torch::Tensor>{torch::ones(2), torch::ones(2)},
                                            std::vector<torch::Tensor>{torch::ones(3)}});
  CHECK(toy::fault_of<etude::DataError>([&] {
          lengths.fetch(Numbers{1, 2});
        }) ==
        "input 0 must be the same for all examples of a batch: float32 [2] in example 1, float32 [3] in "
        "example "
        "2; a data_collator can pad them");
  CHECK(lengths.fetch(Numbers{1, 2}, etude::PaddingCollator()).inputs[0].sizes() ==
        torch::IntArrayRef({2, 3}));
}

TEST_CASE("the fingerprint is made of theirs") {
  const auto fingerprint = [](std::vector<etude::Dataset> datasets) {
    return etude::concatenated(std::move(datasets)).fingerprint();
  };
  const auto both = fingerprint({tensors(0, 3), tensors(3, 4)});
  CHECK_FALSE(both.empty());
  CHECK(both == fingerprint({tensors(0, 3), tensors(3, 4)}));
  CHECK(both != fingerprint({tensors(3, 4), tensors(0, 3)}));
  CHECK(both != fingerprint({tensors(0, 3), tensors(4, 4)}));
  CHECK_FALSE(fingerprint({tensors(0, 3), Getter{3, 4}}).empty());
  CHECK(fingerprint({Getter{0, 3}, Getter{3, 4}}).empty());
}

struct Failing {
  std::int64_t size() const { return 4; }
  torch::Tensor get(std::int64_t i) const {
    if (i == 2) throw std::runtime_error("no such image");
    return torch::zeros({});
  }
};

TEST_CASE("a failing example is named by its number in the whole") {
  const auto all = etude::concatenated({Failing(), Failing()});
  CHECK(toy::fault_of<std::runtime_error>([&] { all.fetch(Numbers{5, 6}); }) == "no such image");
  CHECK(etude::detail::last_failed_example().index == 6);  // the trainer's message has it
}

struct Stream {
  std::optional<torch::Tensor> next() { return std::nullopt; }
};

TEST_CASE("streams, and datasets that can't be one, are refused") {
  const auto fault = [](std::vector<etude::Dataset> datasets) {
    return toy::fault_of<etude::ArgumentError>([&] { etude::concatenated(std::move(datasets)); });
  };
  CHECK(fault({}) == "concatenated needs at least one dataset");
  CHECK(fault({tensors(0, 2), Stream()}) ==
        "dataset 1 of those to concatenate is a stream: must have an index");
  CHECK(fault({etude::Dataset()}) == "dataset 0 of those to concatenate is empty: must be a dataset");
  CHECK(toy::contains(fault({etude::parallel_streams(torch::arange(6), 2)}), "parallel streams"));
  CHECK(toy::contains(fault({tensors(0, 2), etude::already_divided(tensors(2, 2))}), "must be divided"));
  CHECK(etude::concatenated({etude::already_divided(tensors(0, 2))}).is_divided());
}

}  // namespace data_concatenated_test
