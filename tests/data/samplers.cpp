#include "etude/data/samplers.hpp"

#include <doctest/doctest.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/data/data_loader.hpp"

namespace data_samplers_test {

using etude::ArgumentError;
using etude::DataError;
using etude::LengthGroupedSampler;
using etude::WeightedRandomSampler;
using toy::contains;
using Numbers = std::vector<std::int64_t>;

Numbers all_of(torch::data::samplers::Sampler<>& sampler, std::size_t batch_size = 3) {
  Numbers result;
  while (const auto indices = sampler.next(batch_size))
    result.insert(result.end(), indices->begin(), indices->end());
  return result;
}

Numbers sorted(Numbers numbers) {
  std::ranges::sort(numbers);
  return numbers;
}

Numbers first_numbers(std::int64_t count) {
  Numbers result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

std::vector<torch::Tensor> batches(const etude::DataLoader& loader, std::int64_t epoch,
                                   std::int64_t first = 0) {
  std::vector<torch::Tensor> result;
  auto stream = loader.begin_epoch(epoch, first);
  while (const auto batch = stream.next()) result.push_back(batch->inputs[0]);
  return result;
}

TEST_CASE("an order is grouped by length as in Hugging Face's sampler") {
  // get_length_grouped_indices of transformers 5.23, whose torch.randperm gave this order.
  Numbers order, lengths;
  for (std::int64_t i = 0; i < 26; ++i) {
    order.push_back((7 * i + 3) % 26);
    lengths.push_back((5 * i * i + i) % 11 + 1);
  }
  using etude::detail::group_by_length;
  const Numbers of_two{17, 5, 12, 3,  10, 24, 7, 19, 14, 21, 0,  2,  18,
                       16, 9, 4,  23, 11, 6,  8, 20, 1,  25, 13, 15, 22};
  CHECK(group_by_length(order, lengths, 2) == of_two);
  CHECK(group_by_length(order, lengths, 3) == of_two);
  CHECK(group_by_length(order, lengths, 8) == Numbers{17, 5,  19, 12, 3, 10, 24, 0, 7,  16, 9,  4,  23,
                                                      14, 21, 2,  18, 6, 8,  20, 1, 25, 11, 13, 15, 22});
  auto by_length = order;
  std::ranges::stable_sort(by_length, std::ranges::greater(),
                           [&](auto i) { return lengths[static_cast<std::size_t>(i)]; });
  CHECK(group_by_length(order, lengths, std::numeric_limits<std::int64_t>::max()) == by_length);
}

TEST_CASE("megabatches have 50 batches if there are enough, and the longest example comes first") {
  Numbers lengths(2000);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<std::int64_t>(i * 7919 % 2003);
  LengthGroupedSampler sampler(lengths, 4);
  CHECK(sampler.size() == 2000);
  torch::manual_seed(1);
  sampler.reset();
  const auto order = all_of(sampler);
  CHECK(sorted(order) == first_numbers(2000));
  const auto length = [&](std::size_t i) { return lengths[static_cast<std::size_t>(order[i])]; };
  CHECK(length(0) == *std::ranges::max_element(lengths));
  int rises = 0;
  for (std::size_t i = 1; i < order.size(); ++i) rises += length(i) > length(i - 1);
  // Lengths rise where one of the ten megabatches of 200 follows another, and once more where the longest
  // example was taken out.
  CHECK(rises >= 9);
  CHECK(rises <= 10);
}

TEST_CASE("the order is a function of seed and epoch, and the global generator is unchanged") {
  const auto tensors = torch::arange(100);
  Numbers lengths(100);
  for (std::size_t i = 0; i < 100; ++i) lengths[i] = static_cast<std::int64_t>(i % 13);
  const auto loader = [&](std::uint64_t seed, int workers) {
    return etude::DataLoader(tensors, {.batch_size = 4,
                                       .seed = seed,
                                       .num_workers = workers,
                                       .sampler = std::make_shared<LengthGroupedSampler>(lengths, 4)});
  };
  torch::manual_seed(5);
  const auto undisturbed = torch::rand({3});
  torch::manual_seed(5);
  const auto expected = batches(loader(1, 0), 3);
  CHECK(torch::rand({3}).equal(undisturbed));
  CHECK(expected.size() == 25);
  CHECK(loader(1, 0).size() == 25);
  CHECK(!torch::cat(batches(loader(2, 0), 3)).equal(torch::cat(expected)));
  CHECK(!torch::cat(batches(loader(1, 0), 4)).equal(torch::cat(expected)));
  for (const int workers : {0, 1, 4}) {
    const auto again = loader(1, workers);
    batches(again, 0);
    CHECK(torch::cat(batches(again, 3)).equal(torch::cat(expected)));
    // From the middle of an epoch.
    CHECK(torch::cat(batches(again, 3, 40)).equal(torch::cat(expected).narrow(0, 40, 60)));
  }
}

TEST_CASE("a saved sampler continues where it was") {
  LengthGroupedSampler sampler(first_numbers(20), 2), other(first_numbers(20), 2);
  sampler.reset();
  sampler.next(7);
  std::stringstream file;
  torch::serialize::OutputArchive out;
  sampler.save(out);
  out.save_to(file);
  torch::serialize::InputArchive in;
  in.load_from(file);
  other.load(in);
  const auto rest = all_of(sampler);
  CHECK(rest.size() == 13);
  CHECK(all_of(other) == rest);
}

TEST_CASE("examples are as frequent as their weights") {
  WeightedRandomSampler sampler({1, 0, 3, 6}, {.num_samples = 100'000});
  torch::manual_seed(1);
  sampler.reset();
  std::vector<int> counts(4);
  for (const auto i : all_of(sampler, 1000)) ++counts[static_cast<std::size_t>(i)];
  // 10,000, 30,000 and 60,000 are expected, with standard deviations of 95, 145 and 155.
  CHECK(std::abs(counts[0] - 10'000) < 500);
  CHECK(counts[1] == 0);
  CHECK(std::abs(counts[2] - 30'000) < 750);
  CHECK(std::abs(counts[3] - 60'000) < 800);
}

TEST_CASE("without replacement each example comes at most once, heavy ones sooner") {
  WeightedRandomSampler sampler({1, 0, 3}, {.num_samples = 2, .replacement = false});
  torch::manual_seed(1);
  int heavy_first = 0;
  for (int epoch = 0; epoch < 4000; ++epoch) {
    sampler.reset();
    const auto order = all_of(sampler);
    CHECK(sorted(order) == Numbers{0, 2});
    heavy_first += order.front() == 2;
  }
  // 3 of 4 are expected, with a standard deviation of 27.
  CHECK(std::abs(heavy_first - 3000) < 140);
}

TEST_CASE("weights that can't become probabilities are refused") {
  const auto fault = [](std::vector<double> weights, etude::WeightedSampling options = {}) {
    return toy::fault_of<ArgumentError>([&] { WeightedRandomSampler(std::move(weights), options); });
  };
  CHECK(fault({1, -2}) == "weight 1 is -2: must be a finite number from 0");
  CHECK(contains(fault({std::nan("")}), "weight 0 is nan"));
  CHECK(contains(fault({std::numeric_limits<double>::infinity()}), "weight 0 is inf"));
  CHECK(fault({1e308, 1e308}) == "weights: their sum must be finite");
  CHECK(fault({0, 0}) == "weights: one must be positive");
  CHECK(fault({}) == "weights: one must be positive");
  CHECK(fault({1}, {.num_samples = 0}) == "num_samples is 0: must be at least 1");
  CHECK(contains(fault({1}, {.num_samples = std::int64_t{1} << 62}), "must be at most 2^40"));
  CHECK(contains(fault({1, 0}, {.replacement = false}), "num_samples is 2: must be at most 1"));
  CHECK(toy::fault_of<ArgumentError>([] { LengthGroupedSampler({}, 1); }) ==
        "lengths: there must be at least one");
  CHECK(toy::fault_of<ArgumentError>([] { LengthGroupedSampler({1}, 0); }) ==
        "batch_size is 0: must be at least 1");
}

TEST_CASE("an example's length is that of its token ids, or else of its first input") {
  std::vector<std::map<std::string, torch::Tensor>> named;
  std::vector<torch::Tensor> plain;
  for (std::int64_t i = 0; i < 300; ++i) {
    named.push_back({{"a", torch::zeros({2})}, {"input_ids", torch::zeros({i % 7})}});
    plain.push_back(torch::zeros({i % 5 + 1, 3}));
  }
  const auto of_named = etude::lengths_of(named), of_plain = etude::lengths_of(plain);
  REQUIRE(of_named.size() == 300);
  REQUIRE(of_plain.size() == 300);
  for (std::size_t i = 0; i < 300; ++i) {
    CHECK(of_named[i] == static_cast<std::int64_t>(i % 7));
    CHECK(of_plain[i] == static_cast<std::int64_t>(i % 5 + 1));
  }
  CHECK(etude::lengths_of(named, "a") == Numbers(300, 2));
  CHECK(toy::fault_of<DataError>([] { etude::lengths_of(torch::arange(3)); }) ==
        "example 0 has no length: its inputs are int64 []");
}

}  // namespace data_samplers_test
