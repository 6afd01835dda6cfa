#include "etude/data/dataset_state.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "etude/data/data_loader.hpp"

namespace data_dataset_state_test {

using etude::DataLoader;
using Numbers = std::vector<std::int64_t>;

struct Calls {
  int next = 0, state = 0, load_state = 0, reset = 0;
};

/// Counts up from 10 times the number of rewinds.
struct Stream {
  std::shared_ptr<Calls> calls = std::make_shared<Calls>();
  std::int64_t count = 10, at = 0, rewinds = -1, broken = -1;

  void reset() {
    ++calls->reset;
    at = 0;
    ++rewinds;
  }
  std::optional<torch::Tensor> next() {
    ++calls->next;
    if (at == count) return std::nullopt;
    const auto i = at++;
    if (i == broken) throw std::runtime_error("broken");
    return torch::full({}, static_cast<double>(10 * rewinds + i));
  }
  nlohmann::ordered_json state() const {
    ++calls->state;
    return {{"at", at}, {"rewinds", rewinds}};
  }
  void load_state(const nlohmann::ordered_json& state) {
    ++calls->load_state;
    at = state.at("at");
    rewinds = state.at("rewinds");
  }
};

/// Keeps its position in a tensor, which it changes in place.
struct InTensor {
  torch::Tensor at = torch::zeros({}, torch::kLong);

  std::optional<torch::Tensor> next() {
    at += 1;
    return at.to(torch::kFloat);
  }
  etude::DatasetState state() const { return {.values = "numbers", .tensors = {{"at", at}}}; }
  void load_state(const etude::DatasetState& state) { at = state.tensors.at("at"); }
};

Numbers numbers(const std::optional<etude::Batch>& batch) {
  Numbers result;
  if (batch)
    for (std::int64_t i = 0; i < batch->size; ++i) result.push_back(batch->inputs[0][i].item<std::int64_t>());
  return result;
}

TEST_CASE(
    "a stream with a state continues behind the batches that were taken, and reads none of them again") {
  for (const int workers : {0, 1}) {
    CAPTURE(workers);
    const DataLoader first(Stream(), {.batch_size = 3, .num_workers = workers, .prefetch_factor = 4});
    auto begun = first.begin_epoch(0, 0, nullptr);
    CHECK(begun.dataset_state() == nullptr);
    begun.next();
    CHECK(numbers(begun.next()) == Numbers{3, 4, 5});
    const auto state = begun.dataset_state();
    const auto position = begun.position();
    CHECK(position == 6);
    CHECK(state->values == nlohmann::ordered_json{{"at", 6}, {"rewinds", 0}});
    CHECK_FALSE(state->ended);
    begun.next();
    CHECK(state->values.at("at") == 6);

    const Stream fresh;
    const DataLoader second(fresh, {.batch_size = 4, .num_workers = workers});
    auto rest = second.begin_epoch(0, position, state);
    CHECK(rest.dataset_state() == state);
    CHECK(numbers(rest.next()) == Numbers{6, 7, 8, 9});
    CHECK(rest.position() == 10);
    CHECK_FALSE(rest.next().has_value());
    CHECK(fresh.calls->next == 5);
    CHECK(fresh.calls->reset == 0);
  }
}

TEST_CASE("the state at the end of a stream isn't read on from, and the next epoch rewinds from it") {
  for (const int workers : {0, 1}) {
    CAPTURE(workers);
    const DataLoader first(Stream(), {.batch_size = 8, .num_workers = workers});
    auto epoch = first.begin_epoch(0, 0, nullptr);
    while (epoch.next()) {
    }
    const auto end = epoch.dataset_state();
    CHECK(end->ended);
    CHECK(epoch.position() == 10);

    const Stream fresh;
    const DataLoader second(fresh, {.batch_size = 8, .num_workers = workers});
    CHECK_FALSE(second.begin_epoch(0, 10, end).next().has_value());
    CHECK(fresh.calls->next == 0);
    CHECK(numbers(second.begin_epoch(1, 0, end).next()) == Numbers{10, 11, 12, 13, 14, 15, 16, 17});
  }
}

TEST_CASE("tensors of a state are its own: a dataset may change them in place") {
  for (const int workers : {0, 1}) {
    CAPTURE(workers);
    const DataLoader loader(InTensor(), {.batch_size = 2, .num_workers = workers});
    auto epoch = loader.begin_epoch(0, 0, nullptr);
    epoch.next();
    const auto state = epoch.dataset_state();
    const auto position = epoch.position();
    epoch.next();
    for (int i = 0; i < 2; ++i)
      CHECK(numbers(loader.begin_epoch(0, position, state).next()) == Numbers{3, 4});
    CHECK(state->tensors.at("at").item<std::int64_t>() == 2);
    CHECK(state->values == "numbers");
  }
}

TEST_CASE("states cost nothing where no epoch is resumed, and a stream without one reads up to its place") {
  const Stream stream;
  const DataLoader loader(stream, {.batch_size = 4});
  auto epoch = loader.begin_epoch(0);
  while (epoch.next()) {
  }
  CHECK(epoch.dataset_state() == nullptr);
  CHECK(numbers(loader.begin_epoch(0, 8, nullptr).next()) == Numbers{18, 19});
  CHECK(stream.calls->state == 1);
  CHECK(stream.calls->load_state == 0);
  CHECK(loader.has_dataset_state());
  CHECK_FALSE(DataLoader(etude::Dataset(torch::arange(3)), {}).has_dataset_state());
}

TEST_CASE("a batch that couldn't be read has no state after it, but the next one has") {
  for (const int workers : {0, 1}) {
    CAPTURE(workers);
    Stream stream;
    stream.broken = 5;
    const DataLoader loader(stream, {.batch_size = 2, .num_workers = workers});
    auto epoch = loader.begin_epoch(0, 0, nullptr);
    epoch.next();
    epoch.next();
    CHECK_THROWS_AS(epoch.next(), std::runtime_error);
    CHECK(epoch.dataset_state() == nullptr);
    CHECK(numbers(epoch.next()) == Numbers{6, 7});
    CHECK(epoch.dataset_state()->values.at("at") == 8);
  }
}

}  // namespace data_dataset_state_test
