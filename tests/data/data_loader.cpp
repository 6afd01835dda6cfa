#include "etude/data/data_loader.hpp"

#include <doctest/doctest.h>
#include <torch/data/datasets/base.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "common/fault_of.hpp"
#include "common/shuffling.hpp"
#include "etude/base/error.hpp"

namespace data_data_loader_test {

using etude::Batch;
using etude::DataLoader;
using etude::DataLoaderOptions;
using toy::fault_of;
using Numbers = std::vector<std::int64_t>;

Numbers numbers(const torch::Tensor& tensor) {
  const auto flat = tensor.to(torch::kLong).contiguous();
  return {flat.data_ptr<std::int64_t>(), flat.data_ptr<std::int64_t>() + flat.numel()};
}

Numbers range(std::int64_t size) {
  Numbers result(static_cast<std::size_t>(size));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

etude::Dataset counted(std::int64_t size) {
  return {torch::arange(size).to(torch::kFloat).unsqueeze(1), torch::arange(size)};
}

std::vector<Numbers> batches(etude::BatchStream stream) {
  std::vector<Numbers> result;
  while (const auto batch = stream.next()) {
    CHECK(batch->size == batch->inputs[0].size(0));
    result.push_back(numbers(batch->inputs[0]));
  }
  return result;
}

Numbers joined(const std::vector<Numbers>& parts) {
  Numbers result;
  for (const auto& part : parts) result.insert(result.end(), part.begin(), part.end());
  return result;
}

struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// `get` returns the index, slowly for every eighth example, and throws for `broken`.
struct Indices {
  std::int64_t count = 0;
  std::shared_ptr<std::atomic<int>> fetched = std::make_shared<std::atomic<int>>(0);
  std::int64_t broken = -1;
  int unguarded = 0;  // a race if two threads have one copy

  std::int64_t size() const { return count; }
  std::pair<torch::Tensor, std::int64_t> get(std::int64_t index) {
    ++unguarded;
    ++*fetched;
    if (index == broken) throw Broken("example " + std::to_string(index));
    if (index % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return {torch::full({}, static_cast<double>(index)), index};
  }
};

// A stream of the numbers from 0.
struct Stream {
  std::int64_t end = 0;
  std::int64_t position = 0;

  void reset() { position = 0; }
  std::optional<torch::Tensor> next() {
    if (position == end) return std::nullopt;
    return torch::full({}, static_cast<double>(position++));
  }
};

TEST_CASE("in order, every example comes once, and the last batch has the remainder") {
  DataLoader loader(counted(10), {.batch_size = 4});
  CHECK(loader.size() == 3);
  CHECK(loader.dataset_size() == 10);
  CHECK(batches(loader.begin_epoch(0)) == std::vector<Numbers>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}});
  auto stream = loader.begin_epoch(0);
  CHECK(numbers(stream.next()->labels) == Numbers{0, 1, 2, 3});
}

TEST_CASE("drop_last leaves out the partial batch at the end") {
  DataLoader loader(counted(10), {.batch_size = 4, .drop_last = true});
  CHECK(loader.size() == 2);
  CHECK(batches(loader.begin_epoch(0)) == std::vector<Numbers>{{0, 1, 2, 3}, {4, 5, 6, 7}});
}

TEST_CASE("the shuffled order is a function of seed and epoch alone") {
  DataLoader loader(counted(100), {.batch_size = 7, .shuffle = true, .seed = 1});
  torch::manual_seed(5);
  const auto undisturbed = numbers(torch::randint(1000, {4}));
  torch::manual_seed(5);
  const auto first = joined(batches(loader.begin_epoch(0)));
  CHECK(numbers(torch::randint(1000, {4})) == undisturbed);

  auto sorted = first;
  std::ranges::sort(sorted);
  CHECK(sorted == range(100));
  CHECK(first != range(100));
  CHECK(joined(batches(loader.begin_epoch(1))) != first);
  CHECK(joined(batches(loader.begin_epoch(0))) == first);
  DataLoader other_seed(counted(100), {.batch_size = 7, .shuffle = true, .seed = 2});
  CHECK(joined(batches(other_seed.begin_epoch(0))) != first);
  // A seed and an epoch with the same sum as another pair give a different order.
  CHECK(joined(batches(other_seed.begin_epoch(0))) != joined(batches(loader.begin_epoch(1))));
}

// A dataset with more examples than a list of their indices could hold.
struct Endless {
  std::uint64_t count = 0;
  std::uint64_t size() const { return count; }
  torch::Tensor get(std::int64_t index) const { return torch::full({}, index, torch::kLong); }
};

TEST_CASE("a shuffled epoch of any size begins immediately, anywhere in its order") {
  const auto begin = std::chrono::steady_clock::now();
  for (const auto bits : {31, 62}) {
    CAPTURE(bits);
    const auto size = std::int64_t{1} << bits;
    DataLoader loader(Endless{static_cast<std::uint64_t>(size)},
                      {.batch_size = 2, .drop_last = bits == 31, .shuffle = true});
    CHECK(loader.size() == size / 2);
    // Computed in Python from the definition of KeyedPermutation.
    const auto first =
        bits == 31 ? Numbers{1797637392, 374177866} : Numbers{1156285948503563621, 2103619274972368494};
    CHECK(numbers(loader.begin_epoch(0).next()->inputs[0]) == first);
    const std::int64_t last = bits == 31 ? 274536089 : 1853118932856447575;
    if (bits == 62) CHECK(batches(loader.begin_epoch(0, size - 1)) == std::vector<Numbers>{{last}});
    CHECK(numbers(loader.begin_epoch(0, size - 2).next()->inputs[0])[1] == last);
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

TEST_CASE("a dataset whose size becomes negative is refused when the next epoch begins") {
  struct Shrinking {
    std::shared_ptr<std::int64_t> examples;
    std::int64_t size() const { return *examples; }
    torch::Tensor get(std::size_t i) { return torch::tensor(static_cast<std::int64_t>(i)); }
  };
  const auto examples = std::make_shared<std::int64_t>(2);
  DataLoader loader(Shrinking{examples}, {.batch_size = 1, .shuffle = true, .name = "train_dataset"});
  CHECK(batches(loader.begin_epoch(0)).size() == 2);
  *examples = -1;
  CHECK(fault_of<etude::DataError>([&] { loader.begin_epoch(1); }) ==
        "train_dataset: its size is -1: must be at least 0 and at most 2^62 (4611686018427387904)");
}

TEST_CASE("a dataset of more than 2^62 examples is refused, and counts below are right") {
  for (const auto size : {(std::uint64_t{1} << 62) + 1, ~std::uint64_t{0}, std::uint64_t{1} << 63})
    CHECK(fault_of<etude::DataError>([&] {
            DataLoader(Endless{size}, {.name = "train_dataset"});
          }).find("must be at least 0 and at most 2^62 (4611686018427387904)") != std::string::npos);
  const auto most = std::int64_t{1} << 62, largest = std::numeric_limits<std::int64_t>::max();
  const Endless dataset{static_cast<std::uint64_t>(most)};
  DataLoader whole(dataset, {.batch_size = largest, .max_batches = largest});
  CHECK(whole.size() == 1);
  CHECK(whole.size(largest) == 0);
  CHECK(whole.examples() == most);
  CHECK(DataLoader(dataset, {.batch_size = 3}).size() == most / 3 + 1);
  CHECK(DataLoader(dataset, {.batch_size = 3, .drop_last = true}).size() == most / 3);
}

TEST_CASE("an epoch resumes at any batch, without fetching earlier ones") {
  for (const int workers : {0, 2}) {
    Indices dataset{40};
    DataLoader loader(dataset, {.batch_size = 4, .shuffle = true, .num_workers = workers});
    const auto all = batches(loader.begin_epoch(3));
    *dataset.fetched = 0;
    const auto rest = batches(loader.begin_epoch(3, 28));
    CHECK(*dataset.fetched == 12);
    CHECK(rest == std::vector<Numbers>(all.begin() + 7, all.end()));
    CHECK(batches(loader.begin_epoch(3, 44)).empty());
  }
}

TEST_CASE("workers only change which thread fetches") {
  DataLoader alone(Indices{50}, {.batch_size = 3, .shuffle = true});
  const auto expected = batches(alone.begin_epoch(0));
  for (const int workers : {1, 2, 4}) {
    DataLoader loader(Indices{50}, {.batch_size = 3, .shuffle = true, .num_workers = workers});
    CHECK(batches(loader.begin_epoch(0)) == expected);
    CHECK(batches(loader.begin_epoch(1)) != expected);
  }
}

TEST_CASE("workers fetch ahead up to a limit") {
  Indices dataset{1000};
  DataLoader loader(dataset, {.batch_size = 2, .num_workers = 2, .prefetch_factor = 3});
  auto stream = loader.begin_epoch(0);
  stream.next();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(*dataset.fetched <= 2 * 2 * 3);
  CHECK(*dataset.fetched > 2);
}

TEST_CASE("leaving an epoch early does no harm") {
  for (const int workers : {0, 2}) {
    DataLoader loader(Indices{1000}, {.batch_size = 2, .num_workers = workers});
    for (int epoch = 0; epoch < 3; ++epoch) {
      auto stream = loader.begin_epoch(epoch);
      CHECK(numbers(stream.next()->labels) == Numbers{0, 1});
    }
    auto left = loader.begin_epoch(3);
    left.next();
    auto beside = loader.begin_epoch(4);
    CHECK(numbers(beside.next()->labels) == Numbers{0, 1});
    CHECK(numbers(left.next()->labels) == Numbers{2, 3});
    loader.begin_epoch(5);
  }
}

TEST_CASE("a stream outlives its loader") {
  auto loader =
      std::make_unique<DataLoader>(Indices{10}, DataLoaderOptions{.batch_size = 5, .num_workers = 1});
  auto stream = loader->begin_epoch(0);
  loader.reset();
  CHECK(batches(std::move(stream)).size() == 2);
}

TEST_CASE("an epoch resumes at the same example with another batch size") {
  for (const int workers : {0, 2}) {
    DataLoader small(counted(23), {.batch_size = 4, .shuffle = true, .num_workers = workers});
    auto stream = small.begin_epoch(1);
    CHECK(stream.position() == 0);
    auto seen = numbers(stream.next()->labels);
    for (const auto number : numbers(stream.next()->labels)) seen.push_back(number);
    CHECK(stream.position() == 8);
    DataLoader large(counted(23), {.batch_size = 10, .shuffle = true, .num_workers = workers});
    CHECK(large.size(8) == 2);
    const auto rest = batches(large.begin_epoch(1, stream.position()));
    CHECK(rest.size() == 2);
    for (const auto number : joined(rest)) seen.push_back(number);
    CHECK(seen == joined(batches(small.begin_epoch(1))));
  }
  DataLoader dropping(counted(23), {.batch_size = 4, .drop_last = true});
  CHECK(dropping.size(8) == 3);
  CHECK(dropping.size(24) == 0);
}

TEST_CASE("a stream resumes after any example, with another batch size") {
  for (const int workers : {0, 1}) {
    DataLoader loader(Stream{10}, {.batch_size = 3, .num_workers = workers});
    auto stream = loader.begin_epoch(0, 5);
    CHECK(numbers(stream.next()->inputs[0]) == Numbers{5, 6, 7});
    CHECK(stream.position() == 8);
    CHECK(batches(loader.begin_epoch(0, 8)) == std::vector<Numbers>{{8, 9}});
  }
}

TEST_CASE("a sampler with its own generator is reset to the beginning of its epoch") {
  DataLoader loader(counted(12), {.batch_size = 5, .sampler = std::make_shared<toy::Shuffling>(12)});
  loader.begin_epoch(0);
  const auto second = batches(loader.begin_epoch(1));
  const auto state = loader.sampler_state(/*epoch_is_over=*/false);
  CHECK(batches(loader.begin_epoch(2)) != second);
  DataLoader fresh(counted(12), {.batch_size = 5, .sampler = std::make_shared<toy::Shuffling>(12)});
  fresh.load_sampler_state(state);
  CHECK(batches(fresh.begin_epoch(1, 5)) == std::vector<Numbers>(second.begin() + 1, second.end()));
}

TEST_CASE("an error is rethrown unchanged, at its batch's position") {
  for (const int workers : {0, 1, 3}) {
    Indices dataset{20};
    dataset.broken = 9;
    DataLoader loader(dataset, {.batch_size = 4, .num_workers = workers});
    auto stream = loader.begin_epoch(0);
    CHECK(numbers(stream.next()->labels) == Numbers{0, 1, 2, 3});
    CHECK(numbers(stream.next()->labels) == Numbers{4, 5, 6, 7});
    CHECK(fault_of<Broken>([&] { stream.next(); }) == "example 9");
    CHECK(numbers(stream.next()->labels) == Numbers{12, 13, 14, 15});
    CHECK(batches(loader.begin_epoch(0, 12)).size() == 2);
  }
}

TEST_CASE("an error names examples that don't fit together") {
  struct Ragged {
    int size() const { return 8; }
    torch::Tensor get(int index) { return torch::zeros({index < 5 ? 2 : 3}); }
  };
  DataLoader loader(Ragged(), {.batch_size = 4});
  auto stream = loader.begin_epoch(0);
  CHECK(stream.next()->size == 4);
  const auto text = fault_of<etude::DataError>([&] { stream.next(); });
  CHECK(text.find("float32 [2] in example 4, float32 [3] in example 5") != std::string::npos);
  CHECK(text.find("data_collator") != std::string::npos);
}

TEST_CASE("workers don't change others' thread counts") {
  const auto threads_of_a_new_thread = [] {
    int threads = 0;
    std::thread([&] { threads = at::get_num_threads(); }).join();
    return threads;
  };
  at::set_num_threads(3);
  struct Threads {
    int size() const { return 4; }
    torch::Tensor get(int) { return torch::full({}, at::get_num_threads()); }
  };
  const int before = threads_of_a_new_thread();
  DataLoader loader(Threads(), {.batch_size = 2, .num_workers = 2});
  CHECK(batches(loader.begin_epoch(0)) == std::vector<Numbers>{{1, 1}, {1, 1}});
  CHECK(at::get_num_threads() == 3);
  CHECK(threads_of_a_new_thread() == before);
  at::set_num_threads(1);
}

TEST_CASE("numbers drawn from data_generator depend only on seed, epoch and batch") {
  struct Noise {
    int size() const { return 12; }
    torch::Tensor get(int) { return torch::rand({}, etude::data_generator()) * 1e6; }
  };
  DataLoader alone(Noise(), {.batch_size = 3});
  const auto expected = batches(alone.begin_epoch(0));
  DataLoader loader(Noise(), {.batch_size = 3, .num_workers = 2});
  CHECK(batches(loader.begin_epoch(0)) == expected);
  CHECK(batches(loader.begin_epoch(0, 6)) == std::vector<Numbers>(expected.begin() + 2, expected.end()));
  CHECK(batches(loader.begin_epoch(1)) != expected);
  CHECK(expected[0] != expected[1]);
}

TEST_CASE("a get that takes a generator draws the same for an example of an epoch, in any worker and batch") {
  struct Noise {
    int size() const { return 12; }
    std::pair<torch::Tensor, torch::Tensor> get(int i, torch::Generator& generator) {
      const auto first = torch::rand({}, generator);
      return {first * 1e6,
              torch::stack({torch::tensor(i), (torch::rand({}, generator) * 1e6).to(torch::kLong)})};
    }
  };
  // The numbers that each example drew, by its index.
  const auto drawn = [](etude::BatchStream stream) {
    std::map<std::int64_t, Numbers> result;
    while (const auto batch = stream.next())
      for (std::int64_t i = 0; i < batch->size; ++i) {
        const auto label = numbers(batch->labels[0][i]);
        result[label[0]] = {numbers(batch->inputs[0][i])[0], label[1]};
      }
    return result;
  };
  const DataLoader alone(Noise(), {.batch_size = 3});
  const auto expected = drawn(alone.begin_epoch(0));
  CHECK(expected.size() == 12);
  std::set<Numbers> different;
  for (const auto& [i, numbers_of_i] : expected) different.insert(numbers_of_i);
  CHECK(different.size() == 12);
  CHECK(drawn(alone.begin_epoch(0)) == expected);
  CHECK(drawn(alone.begin_epoch(1)) != expected);
  CHECK(drawn(DataLoader(Noise(), {.batch_size = 3, .seed = 7}).begin_epoch(0)) != expected);
  CHECK(drawn(DataLoader(Noise(), {.batch_size = 3, .shuffle = true}).begin_epoch(0)) == expected);
  const DataLoader workers(Noise(), {.batch_size = 5, .shuffle = true, .num_workers = 3});
  CHECK(drawn(workers.begin_epoch(0)) == expected);
  const auto rest = drawn(workers.begin_epoch(0, 7));
  CHECK(rest.size() == 5);
  for (const auto& [i, numbers_of_i] : rest) CHECK(numbers_of_i == expected.at(i));
}

TEST_CASE("streams are read to the last example") {
  for (const int workers : {0, 3}) {
    DataLoader loader(Stream{10}, {.batch_size = 4, .num_workers = workers});
    CHECK_FALSE(loader.size().has_value());
    CHECK_FALSE(loader.dataset_size().has_value());
    for (int epoch = 0; epoch < 2; ++epoch) {
      CHECK(batches(loader.begin_epoch(epoch)) == std::vector<Numbers>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}});
    }
    CHECK(batches(loader.begin_epoch(2, 8)) == std::vector<Numbers>{{8, 9}});
    CHECK(batches(loader.begin_epoch(2, 20)).empty());
    DataLoader dropping(Stream{10}, {.batch_size = 4, .drop_last = true, .num_workers = workers});
    CHECK(batches(dropping.begin_epoch(0)) == std::vector<Numbers>{{0, 1, 2, 3}, {4, 5, 6, 7}});
  }
}

TEST_CASE("a stream dataset has one position: a new epoch ends the previous one with an error") {
  for (const int workers : {0, 1}) {
    DataLoader loader(Stream{10}, {.batch_size = 4, .num_workers = workers});
    auto old = loader.begin_epoch(0);
    old.next();
    auto fresh = loader.begin_epoch(1);
    CHECK_THROWS_AS(old.next(), etude::DataError);
    CHECK(batches(std::move(fresh)).size() == 3);
  }
}

TEST_CASE("torch's samplers select the examples") {
  auto random = std::make_shared<torch::data::samplers::RandomSampler>(10);
  DataLoader loader(counted(10), {.batch_size = 4, .sampler = random});
  CHECK(loader.size() == 3);
  auto order = joined(batches(loader.begin_epoch(0)));
  CHECK(order.size() == 10);
  CHECK(std::set(order.begin(), order.end()).size() == 10);

  CHECK(joined(batches(loader.begin_epoch(1))) != order);
  torch::manual_seed(99);
  CHECK(joined(batches(loader.begin_epoch(0))) == order);  // a function of (seed, epoch)

  auto sequential = std::make_shared<torch::data::samplers::SequentialSampler>(10);
  DataLoader in_order(counted(10),
                      {.batch_size = 4, .drop_last = true, .num_workers = 1, .sampler = sequential});
  CHECK(in_order.size() == 2);
  CHECK(batches(in_order.begin_epoch(0, 4)) == std::vector<Numbers>{{4, 5, 6, 7}});
}

TEST_CASE("the number of batches follows a sampler that covers a part of the dataset") {
  DataLoader loader(
      counted(100),
      {.batch_size = 4, .sampler = std::make_shared<torch::data::samplers::SequentialSampler>(10)});
  CHECK(loader.size() == 3);
  CHECK(batches(loader.begin_epoch(0)).size() == 3);
}

TEST_CASE("a distributed sampler learns the epoch") {
  auto sampler = std::make_shared<torch::data::samplers::DistributedRandomSampler>(20, 2, 0);
  DataLoader loader(counted(20), {.batch_size = 5, .sampler = sampler});
  CHECK_FALSE(loader.size().has_value());
  const auto first = joined(batches(loader.begin_epoch(0)));
  const auto second = joined(batches(loader.begin_epoch(1)));
  CHECK(first.size() == 10);
  CHECK(first != second);
  CHECK(joined(batches(loader.begin_epoch(0))) == first);
}

TEST_CASE("a sampler's error comes after the batches before it") {
  struct Failing : torch::data::samplers::Sampler<> {
    int calls = 0;
    void reset(torch::optional<size_t>) override { calls = 0; }
    torch::optional<std::vector<size_t>> next(size_t) override {
      if (++calls == 3) throw Broken("sampler");
      return std::vector<size_t>{0, 1};
    }
    void save(torch::serialize::OutputArchive&) const override {}
    void load(torch::serialize::InputArchive&) override {}
  };
  for (const int workers : {0, 2}) {
    DataLoader loader(counted(4),
                      {.batch_size = 2, .num_workers = workers, .sampler = std::make_shared<Failing>()});
    auto stream = loader.begin_epoch(0);
    CHECK(stream.next()->size == 2);
    CHECK(stream.next()->size == 2);
    CHECK(fault_of<Broken>([&] { stream.next(); }) == "sampler");
  }
}

TEST_CASE("labels are found by name") {
  struct Named {
    int size() const { return 3; }
    std::map<std::string, torch::Tensor> get(int index) {
      return {{"ids", torch::zeros({2})}, {"labels", torch::full({}, index)}, {"mask", torch::ones({2})}};
    }
  };
  DataLoader loader(Named(), {.batch_size = 3});
  const auto batch = loader.begin_epoch(0).next();
  CHECK(batch->inputs.names() == std::vector<std::string>{"ids", "mask"});
  CHECK(batch->labels.names() == std::vector<std::string>{"labels"});
  CHECK(numbers(batch->labels) == Numbers{0, 1, 2});
  DataLoader unlabelled(Named(), {.batch_size = 3, .label_names = {}});
  CHECK(unlabelled.begin_epoch(0).next()->inputs.size() == 3);
}

TEST_CASE("a collator creates the batches, also for tensors") {
  DataLoaderOptions options{.batch_size = 2};
  options.collator = [](std::vector<etude::Example> examples) {
    std::vector<torch::Tensor> inputs;
    for (const auto& example : examples) inputs.push_back(example.inputs[0] * 10);
    return Batch{torch::stack(inputs), {}};
  };
  DataLoader loader(counted(4), options);
  CHECK(batches(loader.begin_epoch(0)) == std::vector<Numbers>{{0, 10}, {20, 30}});
}

TEST_CASE("unsupported options are refused by name, all at once") {
  const auto refused = [](etude::Dataset dataset, DataLoaderOptions options) {
    return fault_of<etude::ArgumentError>([&] { DataLoader(dataset, options); });
  };
  CHECK(refused(counted(4), {.batch_size = 0, .num_workers = -1, .prefetch_factor = 0}) ==
        "batch_size: must be at least 1, not 0\nnum_workers: must be at least 0, not -1\n"
        "prefetch_factor: must be at least 1, not 0");
  auto sampler = std::make_shared<torch::data::samplers::SequentialSampler>(4);
  CHECK(refused(counted(4), {.shuffle = true, .sampler = sampler}).starts_with("shuffle: "));
  CHECK(refused(Stream{4}, {.shuffle = true, .name = "train_dataset"}) ==
        "shuffle: must be false, because train_dataset is a stream");
  CHECK(refused(Stream{4}, {.sampler = sampler}).starts_with("sampler: "));
  CHECK(refused(etude::Dataset(), {.name = "eval_dataset"}).starts_with("eval_dataset: "));
  DataLoader loader(counted(4), {});
  CHECK_THROWS_AS(loader.begin_epoch(-1), etude::ArgumentError);
  CHECK_THROWS_AS(loader.begin_epoch(0, -1), etude::ArgumentError);
}

TEST_CASE("a dataset without a single batch is refused") {
  const auto refused = [](etude::Dataset dataset, DataLoaderOptions options) {
    return fault_of<etude::DataError>([&] { DataLoader(dataset, options); });
  };
  CHECK(refused(counted(0), {.name = "train_dataset"}) == "train_dataset: it has no examples");
  CHECK(refused(counted(3), {.batch_size = 4, .drop_last = true}).find("fewer than the batch_size of 4") !=
        std::string::npos);
}

TEST_CASE("a dataset that can't be copied works only without workers") {
  struct Unique {
    std::unique_ptr<int> owned = std::make_unique<int>(1);
    int size() const { return 4; }
    torch::Tensor get(int index) { return torch::full({}, index); }
  };
  DataLoader alone(Unique(), {.batch_size = 4});
  CHECK(batches(alone.begin_epoch(0)) == std::vector<Numbers>{{0, 1, 2, 3}});
  DataLoader loader(Unique(), {.batch_size = 4, .num_workers = 1});
  CHECK(fault_of<etude::ArgumentError>([&] { loader.begin_epoch(0); }).find("can't be copied") !=
        std::string::npos);
}

TEST_CASE("pinned memory is only requested with CUDA") {
  DataLoader loader(counted(4), {.batch_size = 4, .pin_memory = true});
  CHECK(loader.begin_epoch(0).next()->inputs[0].is_pinned() == torch::cuda::is_available());
}

TEST_CASE("an epoch ends after max_batches, from any start, and its size reflects that") {
  for (const int workers : {0, 2}) {
    CAPTURE(workers);
    DataLoader loader(counted(10), {.batch_size = 3, .num_workers = workers});
    loader.limit_batches(2);
    CHECK(loader.size() == 2);
    CHECK(loader.size(3) == 1);
    CHECK(loader.size(6) == 0);
    CHECK(loader.examples() == 6);
    for (const auto& [first, batches] : {std::pair{0, 2}, {3, 1}, {6, 0}}) {
      auto epoch = loader.begin_epoch(0, first);
      int count = 0;
      while (epoch.next()) ++count;
      CHECK(count == batches);
    }
  }
  const auto sequential = std::make_shared<torch::data::samplers::SequentialSampler>(10);
  for (DataLoader limited : {DataLoader(Stream{10}, {.batch_size = 3}),
                             DataLoader(counted(10), {.batch_size = 3, .sampler = sequential})}) {
    limited.limit_batches(2);
    CHECK(batches(limited.begin_epoch(0)).size() == 2);
    CHECK(batches(limited.begin_epoch(0, 3)).size() == 1);
  }
  DataLoader loader(counted(10), {.batch_size = 3});
  loader.limit_batches(4);
  CHECK(loader.examples() == 10);
  loader.limit_batches(9);
  CHECK(loader.size() == 4);
  CHECK_THROWS_AS(loader.limit_batches(0), etude::ArgumentError);
}

}  // namespace data_data_loader_test
