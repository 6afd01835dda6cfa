#include "etude/data/parallel_streams.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/data/data_loader.hpp"

namespace data_parallel_streams_test {

std::vector<std::vector<std::int64_t>> batches_of(const etude::DataLoader& loader, std::int64_t from = 0) {
  std::vector<std::vector<std::int64_t>> batches;
  for (auto stream = loader.begin_epoch(0, from); const auto batch = stream.next();) {
    const auto rows = batch->inputs[0].flatten();
    batches.emplace_back(rows.data_ptr<std::int64_t>(), rows.data_ptr<std::int64_t>() + rows.numel());
  }
  return batches;
}

using Batches = std::vector<std::vector<std::int64_t>>;

TEST_CASE("each row of a batch continues the same row of the batch before, with and without workers") {
  const auto windows = etude::parallel_streams(torch::arange(14), 4);  // the last 2 are left out
  CHECK(windows.size() == 12);
  for (const int workers : {0, 3}) {
    const etude::DataLoader loader(windows, {.batch_size = 4, .num_workers = workers});
    CHECK(batches_of(loader) == Batches{{0, 3, 6, 9}, {1, 4, 7, 10}, {2, 5, 8, 11}});
    CHECK(batches_of(loader, 8) == Batches{{2, 5, 8, 11}});
  }
}

TEST_CASE("a process has the same streams in every batch") {
  for (const std::int64_t rank : {0, 1}) {
    const etude::DataLoader loader(etude::parallel_streams(torch::arange(12), 4),
                                   {.batch_size = 2, .part = {.rank = rank, .world_size = 2}});
    CHECK(batches_of(loader) ==
          (rank == 0 ? Batches{{0, 3}, {1, 4}, {2, 5}} : Batches{{6, 9}, {7, 10}, {8, 11}}));
  }
}

TEST_CASE("a text's targets are its tokens one later, and the last window is shorter") {
  const auto text =
      etude::token_streams(torch::arange(100, 117), 2, 3);  // 8 tokens per stream, 1 is left out
  CHECK(text.size() == 6);
  const etude::DataLoader loader(text, {.batch_size = 2});
  auto stream = loader.begin_epoch(0);
  for (const auto& [first, length] : {std::pair(0, 3), std::pair(3, 3), std::pair(6, 1)}) {
    const auto batch = stream.next().value();
    const auto expected = torch::stack(
        {torch::arange(100 + first, 100 + first + length), torch::arange(108 + first, 108 + first + length)});
    CHECK(torch::equal(batch.inputs[0], expected));
    CHECK(torch::equal(batch.labels[0], expected + 1));
  }
  CHECK_FALSE(stream.next());
}

TEST_CASE("what streams can't be made of, and a loader that would tear them, are refused") {
  const auto windows = etude::parallel_streams(torch::arange(12), 4);
  const auto loader_fault = [&](etude::DataLoaderOptions options) {
    return toy::fault_of<etude::ArgumentError>([&] { etude::DataLoader(windows, std::move(options)); });
  };
  CHECK(
      loader_fault({.batch_size = 3}) ==
      "batch_size: must be 4 over all 1 processes, because dataset has 4 parallel streams; it is 3 in each");
  CHECK(loader_fault({.batch_size = 4, .shuffle = true}) ==
        "shuffle: must be false, because dataset has 4 parallel streams");

  CHECK(toy::fault_of<etude::ArgumentError>([] { etude::parallel_streams(torch::arange(12), 0); }) ==
        "streams is 0: must be at least 1");
  CHECK(toy::fault_of<etude::DataError>([] { etude::parallel_streams(torch::arange(3), 4); }) ==
        "there are 3 windows: must be at least 4, one for each stream");
  CHECK(toy::fault_of<etude::DataError>([] { etude::token_streams(torch::arange(7), 4, 3); }) ==
        "there are 7 tokens for 4 streams: must be at least 2 for each");
  CHECK(toy::fault_of<etude::ArgumentError>([] { etude::token_streams(torch::arange(7), 1, 0); }) ==
        "window is 0: must be at least 1");
  CHECK(toy::fault_of<etude::DataError>([] {
          etude::token_streams(torch::zeros({2, 3}), 1, 1);
        }) == "tokens are float32 [2, 3]: must have one dimension");
}

}  // namespace data_parallel_streams_test
