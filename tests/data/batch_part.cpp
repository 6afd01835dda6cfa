#include <doctest/doctest.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/data/samplers.hpp"

// Tests of batches that several processes share.

namespace data_batch_part_test {

using Examples = std::vector<std::int64_t>;

struct Taken {
  Examples examples;
  std::vector<double> shares;
  std::vector<std::int64_t> positions;
};

Taken take(etude::Dataset dataset, etude::DataLoaderOptions options, std::int64_t epoch = 0,
           std::int64_t from = 0) {
  const etude::DataLoader loader(std::move(dataset), std::move(options));
  auto batches = loader.begin_epoch(epoch, from);
  Taken taken;
  while (const auto batch = batches.next()) {
    const auto& rows = batch->inputs[0];
    for (std::int64_t i = 0; i < rows.size(0); ++i) taken.examples.push_back(rows[i].item<std::int64_t>());
    taken.examples.push_back(-1);
    taken.shares.push_back(batches.share());
    taken.positions.push_back(batches.position());
  }
  return taken;
}

etude::Dataset numbers(std::int64_t count) {
  return etude::Dataset(torch::arange(count), torch::arange(count));
}

struct Stream {
  std::optional<torch::Tensor> next() {
    return at < count ? std::optional(torch::tensor(at++)) : std::nullopt;
  }
  void reset() { at = 0; }
  std::int64_t count, at = 0;
};

TEST_CASE("each process takes its rows of every batch of all, and together they take each example once") {
  for (const int workers : {0, 2})
    for (const bool is_stream : {false, true}) {
      if (is_stream && workers == 2) continue;
      CAPTURE(workers);
      CAPTURE(is_stream);
      const auto of_rank = [&](std::int64_t rank) {
        return take(is_stream ? etude::Dataset(Stream{10}) : numbers(10),
                    {.batch_size = 2, .part = {rank, 2}, .num_workers = workers});
      };
      const auto first = of_rank(0), second = of_rank(1);
      // The global batches are 0 to 3, 4 to 7, and 8 and 9.
      CHECK(first.examples == Examples{0, 1, -1, 4, 5, -1, 8, -1});
      CHECK(second.examples == Examples{2, 3, -1, 6, 7, -1, 9, -1});
      CHECK(first.shares == std::vector<double>{0.5, 0.5, 0.5});
      CHECK(first.positions == Examples{4, 8, 10});
      CHECK(second.positions == first.positions);
    }
}

TEST_CASE("the last examples are divided, and a process without any has one that counts nothing") {
  for (const bool is_stream : {false, true}) {
    CAPTURE(is_stream);
    const auto of_rank = [&](std::int64_t rank) {
      return take(is_stream ? etude::Dataset(Stream{14}) : numbers(14), {.batch_size = 4, .part = {rank, 3}});
    };
    CHECK(of_rank(0).examples == Examples{0, 1, 2, 3, -1, 12, -1});
    CHECK(of_rank(1).examples == Examples{4, 5, 6, 7, -1, 12, -1});
    CHECK(of_rank(2).examples == Examples{8, 9, 10, 11, -1, 13, -1});
    CHECK(of_rank(0).shares[1] + of_rank(1).shares[1] + of_rank(2).shares[1] == doctest::Approx(1));
    CHECK(of_rank(0).shares[1] == 0);
  }
  const auto five = [](std::int64_t rank) { return take(numbers(5), {.batch_size = 4, .part = {rank, 2}}); };
  CHECK(five(0).examples == Examples{0, 1, -1});
  CHECK(five(0).shares == std::vector<double>{0.4});
  CHECK(five(1).shares == std::vector<double>{0.6});
}

TEST_CASE("drop_last leaves out what doesn't fill the batches of all") {
  const auto taken = take(numbers(11), {.batch_size = 2, .part = {1, 2}, .drop_last = true});
  CHECK(taken.examples == Examples{2, 3, -1, 6, 7, -1});
  CHECK(toy::contains(toy::fault_of<etude::DataError>([] {
                        take(numbers(3), {.batch_size = 2, .part = {1, 2}, .drop_last = true});
                      }),
                      "it has 3 examples, fewer than the batch_size of 4"));
}

TEST_CASE("the processes' shuffled batches are those of one process with their sum as batch size") {
  const auto whole = take(numbers(20), {.batch_size = 6, .shuffle = true}, 3);
  Examples joined;
  std::vector<Taken> parts;
  for (std::int64_t rank = 0; rank < 3; ++rank)
    parts.push_back(take(numbers(20), {.batch_size = 2, .part = {rank, 3}, .shuffle = true}, 3));
  // Three full batches: each part has two examples and a mark.
  for (std::size_t batch = 0; batch < 3; ++batch) {
    for (const auto& part : parts)
      for (std::size_t i = 0; i < 2; ++i) joined.push_back(part.examples[3 * batch + i]);
    joined.push_back(-1);
  }
  CHECK(joined == Examples(whole.examples.begin(), whole.examples.begin() + 21));
}

TEST_CASE("another number of processes goes on at the same example") {
  const auto before = take(numbers(24), {.batch_size = 2, .part = {1, 4}});
  REQUIRE(before.positions[0] == 8);
  const auto after = take(numbers(24), {.batch_size = 4, .part = {1, 2}}, 0, before.positions[0]);
  CHECK(after.examples == Examples{12, 13, 14, 15, -1, 20, 21, 22, 23, -1});
}

TEST_CASE("a sampler's examples are divided") {
  const auto of_rank = [](std::int64_t rank) {
    return take(numbers(8), {.batch_size = 2,
                             .part = {rank, 2},
                             .sampler = std::make_shared<torch::data::samplers::SequentialSampler>(8)});
  };
  CHECK(of_rank(0).examples == Examples{0, 1, -1, 4, 5, -1});
  CHECK(of_rank(1).examples == Examples{2, 3, -1, 6, 7, -1});
}

TEST_CASE("a rank that isn't one of the processes is refused") {
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>([] {
                        take(numbers(8), {.part = {2, 2}});
                      }),
                      "part.rank: must be from 0 to 1, not 2"));
}

}  // namespace data_batch_part_test
