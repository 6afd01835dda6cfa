#include "etude/data/dataset.hpp"
#include "etude/base/error.hpp"

#include <doctest/doctest.h>
#include <torch/data.h>
#include <torch/serialize/archive.h>

#include <boost/hana/define_struct.hpp>
#include <map>

#include "common/fault_of.hpp"

namespace data_dataset_test {

using etude::Batch;
using etude::Dataset;
using etude::Tensors;
using toy::contains;
using toy::fault_of;
using Indices = std::vector<std::int64_t>;

torch::Tensor row(std::int64_t index) { return torch::full({2}, static_cast<double>(index)); }

/// Counts the examples requested from it.
struct Asked {
  std::shared_ptr<int> times = std::make_shared<int>();
  std::size_t size() const { return 3; }
  torch::Tensor get(std::size_t) { return ++*times, torch::zeros({1}); }
};

TEST_CASE("the fingerprint covers a few examples of tensors and vectors") {
  const auto x = torch::arange(100).to(torch::kFloat).reshape({50, 2});
  const auto y = torch::arange(50);
  const auto of = [](const Dataset& dataset) { return dataset.fingerprint(); };
  CHECK(of({x, y}) == of({x.clone(), y.clone()}));
  CHECK(of({x, y}) == of({x.t().contiguous().t(), y}));
  CHECK(of({x, y}) != of({x + 1, y}));
  CHECK(of({x, y}) != of({x, y + 1}));
  CHECK(of({x, y}) != of({x.to(torch::kDouble), y}));
  CHECK(of({x, y}) != of(x));
  auto last = y.clone();
  last[49] = 7;
  CHECK(of({x, y}) != of({x, last}));
  for (const std::int64_t n : {1, 2, 7, 8, 9, 17}) {
    auto ends = y.slice(0, 0, n).clone();
    const auto before = of(ends);
    ends[n - 1] = 7777;
    CHECK(of(ends) != before);
  }
  CHECK(of({torch::zeros({0, 2}), torch::zeros({0})}) == of({torch::zeros({0, 2}), torch::zeros({0})}));
  using Examples = std::vector<std::pair<torch::Tensor, std::int64_t>>;
  CHECK(of(Examples{{row(1), 1}, {row(2), 2}}) == of(Examples{{row(1), 1}, {row(2), 2}}));
  CHECK(of(Examples{{row(1), 1}, {row(2), 2}}) != of(Examples{{row(1), 1}, {row(3), 2}}));
}

struct Fingerprinted : Asked {
  std::string fingerprint() const { return "mine"; }
};

TEST_CASE("the fingerprint is the dataset's own if it has one, and else doesn't call the program's code") {
  CHECK(Dataset(Fingerprinted()).fingerprint() == "mine");
  const Asked asked;
  CHECK(Dataset(asked).fingerprint() == "");
  CHECK(*asked.times == 0);
}

// Checks the result of fetching 1 and 3 from a dataset whose example i is row(i) with label i.
void check_one_and_three(const Batch& batch) {
  CHECK(batch.size == 2);
  CHECK(batch.inputs.single().equal(torch::tensor({{1.0f, 1.0f}, {3.0f, 3.0f}})));
  CHECK(batch.labels.single().equal(torch::tensor({1, 3}, torch::kLong)));
}

struct TorchDataset : torch::data::datasets::Dataset<TorchDataset> {
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {row(i), torch::full({}, i, torch::kLong)};
  }
  torch::optional<size_t> size() const override { return 5; }
};

struct TorchBatches : torch::data::datasets::BatchDataset<TorchBatches, torch::data::Example<>> {
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> request) override {
    std::vector<torch::Tensor> rows, labels;
    for (const auto i : request) {
      auto example = TorchDataset().get(i);
      rows.push_back(example.data);
      labels.push_back(example.target);
    }
    return {torch::stack(rows), torch::stack(labels)};
  }
  torch::optional<size_t> size() const override { return 5; }
};

// Five numbers as a torch stateful dataset.
struct TorchStream : torch::data::datasets::StatefulDataset<TorchStream> {
  size_t position = 0;
  int asked_after_end = 0;
  torch::optional<std::vector<torch::data::Example<>>> get_batch(size_t batch_size) override {
    std::vector<torch::data::Example<>> batch;
    while (batch.size() < batch_size && position < 5) batch.push_back(TorchDataset().get(position++));
    if (batch.empty()) {
      if (++asked_after_end > 1) throw std::logic_error("asked again");
      return {};
    }
    return batch;
  }
  torch::optional<size_t> size() const override { return {}; }
  void reset() override { position = 0, asked_after_end = 0; }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
};

TEST_CASE("the rows of tensors are examples") {
  const auto inputs = torch::arange(5).to(torch::kFloat).unsqueeze(1).expand({5, 2}).contiguous();
  const Dataset dataset = {inputs, torch::arange(5)};
  CHECK(dataset.size() == 5);
  CHECK(dataset.is_indexed());
  check_one_and_three(dataset.fetch(Indices{1, 3}));
  // Consecutive examples are copied, too.
  const auto block = dataset.fetch(Indices{1, 2, 3});
  CHECK(block.inputs[0].data_ptr() != inputs[1].data_ptr());  // a model may work in place
  CHECK(block.inputs[0].equal(inputs.narrow(0, 1, 3)));
  CHECK(block.labels.single().equal(torch::tensor({1, 2, 3}, torch::kLong)));
  CHECK(dataset.fetch(Indices{3, 2}).labels.single().equal(torch::tensor({3, 2}, torch::kLong)));
  CHECK_THROWS(dataset.fetch(Indices{4, 9}));

  const Dataset several = {{inputs, inputs * 2}, torch::arange(5)};
  CHECK(several.fetch(Indices{0}).inputs.size() == 2);
  const Dataset named = {Tensors({inputs}, {"x"}), Tensors({torch::arange(5)}, {"y"})};
  CHECK(named.fetch(Indices{0}).labels.at("y").item<int>() == 0);
  const Dataset unlabelled = inputs;
  CHECK(unlabelled.fetch(Indices{2}).labels.empty());
  const Dataset torchs = torch::data::datasets::TensorDataset(inputs);
  CHECK(torchs.fetch(Indices{1, 2}).inputs[0].equal(inputs.narrow(0, 1, 2)));
}

TEST_CASE("tensors that disagree on the number of examples are refused") {
  CHECK(contains(fault_of<etude::DataError>([] {
                   Dataset(torch::zeros({4, 2}), torch::zeros({3}));
                 }),
                 "inputs: float32 [4, 2]; labels: float32 [3]"));
  CHECK_THROWS_AS(Dataset(Tensors(), torch::zeros({3})), etude::DataError);
}

TEST_CASE("torch's datasets and transforms are datasets") {
  const torch::data::transforms::TensorLambda<> same([](torch::Tensor tensor) { return tensor; });
  const torch::data::transforms::Stack<> stack;
  for (const Dataset& dataset :
       {Dataset(TorchDataset()), Dataset(TorchDataset().map(stack)), Dataset(TorchBatches()),
        Dataset(TorchDataset().map(same)), Dataset(TorchDataset().map(same).map(stack))}) {
    CHECK(dataset.size() == 5);
    CHECK(dataset.is_indexed());
    check_one_and_three(dataset.fetch(Indices{1, 3}));
  }
  // (3 - 1) / 2, in the shape [1, 1, 2] to which Normalize expands a row.
  const Dataset normalized = TorchDataset().map(torch::data::transforms::Normalize<>(1, 2)).map(stack);
  CHECK(normalized.fetch(Indices{3}).inputs.single().equal(torch::ones({1, 1, 1, 2})));
}

TEST_CASE("torch's streams are read to the end, and not read again") {
  const Dataset dataset = TorchStream();
  CHECK_FALSE(dataset.is_indexed());
  CHECK_FALSE(dataset.size().has_value());
  const Dataset mapped = TorchStream().map(torch::data::transforms::Stack<>());
  for (const auto& stream : {dataset, mapped}) {
    for (int round = 0; round < 2; ++round) {
      CHECK(stream.next(3)->labels.single().equal(torch::tensor({0, 1, 2}, torch::kLong)));
      CHECK(stream.next(3)->size == 2);
      CHECK_FALSE(stream.next(3).has_value());
      CHECK_FALSE(stream.next(3).has_value());
      stream.reset();
    }
  }
  CHECK_THROWS_AS(dataset.fetch(Indices{0}), etude::DataError);
  CHECK_THROWS_AS(Dataset(torch::zeros({2})).next(1), etude::DataError);
}

template <class Gives>
struct Getting {
  Gives give;
  std::uint64_t size() const { return 5; }
  auto get(std::size_t index) { return give(static_cast<std::int64_t>(index)); }
};

template <class Gives>
Getting(Gives) -> Getting<Gives>;

struct Record {
  BOOST_HANA_DEFINE_STRUCT(Record, (torch::Tensor, x), (torch::Tensor, labels));
};

TEST_CASE("any type with size and get is a dataset") {
  const auto label = [](std::int64_t i) { return torch::full({}, i, torch::kLong); };
  const auto pair = [&](std::int64_t i) { return std::pair(row(i), label(i)); };
  const auto number = [](std::int64_t i) { return std::pair(row(i), static_cast<int>(i)); };
  const auto own = [&](std::int64_t i) { return etude::Example{row(i), label(i)}; };
  const auto torchs = [](std::int64_t i) {
    return torch::data::Example<torch::Tensor, std::int64_t>{row(i), i};
  };
  check_one_and_three(Dataset(Getting{pair}).fetch(Indices{1, 3}));
  check_one_and_three(Dataset(Getting{number}).fetch(Indices{1, 3}));
  check_one_and_three(Dataset(Getting{own}).fetch(Indices{1, 3}));
  check_one_and_three(Dataset(Getting{torchs}).fetch(Indices{1, 3}));
  check_one_and_three(Dataset(std::vector{pair(0), pair(1), pair(2), pair(3)}).fetch(Indices{1, 3}));
  CHECK(Dataset(Getting{pair}).size() == 5);

  // The last of a longer tuple is the label.
  const auto three = Dataset(Getting{[&](std::int64_t i) { return std::tuple(row(i), row(i) * 2, 0.5); }});
  const auto batch = three.fetch(Indices{1, 3});
  CHECK(batch.inputs.size() == 2);
  CHECK(batch.labels.single().equal(torch::tensor({0.5f, 0.5f})));
  // Named tensors all become inputs, because only the loader knows which are labels.
  const auto record = [&](std::int64_t i) { return Record{row(i), label(i)}; };
  CHECK(Dataset(Getting{record}).fetch(Indices{1}).inputs.names() == std::vector<std::string>{"x", "labels"});
}

/// A torch dataset with a second `get` that takes a generator.
struct TorchNoise : torch::data::datasets::Dataset<TorchNoise> {
  torch::data::Example<> get(std::size_t) override { return {torch::zeros({}), torch::zeros({})}; }
  torch::data::Example<> get(std::size_t, const torch::Generator& generator) {
    return {torch::rand({}, generator), torch::zeros({})};
  }
  torch::optional<std::size_t> size() const override { return 3; }
};

TEST_CASE("a size that isn't const is called too") {
  struct Rows {
    int size() { return 3; }
    torch::Tensor get(int i) { return row(i); }
  };
  CHECK(Dataset(Rows()).size() == 3);
}

TEST_CASE("a get that takes a generator, by reference or as a handle, is the one that is called") {
  struct ByValue {
    int size() const { return 3; }
    torch::Tensor get(int) { return torch::zeros({}); }
    torch::Tensor get(int, torch::Generator generator) { return torch::rand({}, generator); }
  };
  struct ByReference {
    int size() const { return 3; }
    torch::Tensor get(std::size_t, torch::Generator& generator) const { return torch::rand({}, generator); }
  };
  const auto drawn = [](const Dataset& dataset, std::uint64_t seed) {
    return dataset.fetch(Indices{2, 0}, {}, seed).inputs.single();
  };
  const auto expected = drawn(ByReference(), 5);
  CHECK(expected[0].item<double>() != expected[1].item<double>());
  CHECK(drawn(ByReference(), 5).equal(expected));
  CHECK_FALSE(drawn(ByReference(), 6).equal(expected));
  CHECK(drawn(ByValue(), 5).equal(expected));
  CHECK(drawn(TorchNoise(), 5).equal(expected));
}

TEST_CASE("any type with next is a stream") {
  struct Counter {
    int position = 0;
    std::optional<std::pair<torch::Tensor, int>> next() {
      if (position == 3) return std::nullopt;
      ++position;
      return std::pair(row(position), position);
    }
  };
  const Dataset stream = Counter();
  CHECK(stream.next(2)->size == 2);
  CHECK(stream.next(2)->size == 1);
  CHECK_FALSE(stream.next(2).has_value());
}

TEST_CASE("a type that can't produce examples isn't a dataset") {
  struct NoGet {
    int size() const { return 1; }
  };
  CHECK_FALSE(etude::DatasetConvertible<int>);
  CHECK_FALSE(etude::DatasetConvertible<NoGet>);
  CHECK_FALSE(etude::DatasetConvertible<std::vector<std::string>>);
  CHECK_FALSE(etude::DatasetConvertible<std::map<std::string, Dataset>>);
  CHECK(std::convertible_to<TorchDataset&, Dataset>);
}

TEST_CASE("the error about examples that don't stack names index, tensor and shape") {
  const Dataset dataset =
      Getting{[](std::int64_t i) { return std::pair(torch::zeros({i == 3 ? 4 : 2}), 0); }};
  CHECK(fault_of<etude::DataError>([&] {
          dataset.fetch(Indices{1, 3});
        }) ==
        "input 0 must be the same for all examples of a batch: float32 [2] in example 1, float32 [4] in "
        "example 3; a "
        "data_collator can pad them");
  const Dataset named = Getting{[](std::int64_t i) {
    return std::map<std::string, torch::Tensor>{
        {"ids", torch::zeros({2}, i == 3 ? torch::kLong : torch::kFloat)}};
  }};
  CHECK(fault_of<etude::DataError>([&] {
          named.fetch(Indices{1, 3});
        }) ==
        "input 'ids' must be the same for all examples of a batch: float32 [2] in example 1, int64 [2] in "
        "example 3; convert them to one type");
  const Dataset counts = Getting{[](std::int64_t i) {
    return std::pair(std::vector<torch::Tensor>(static_cast<std::size_t>(i), torch::zeros({1})), 0);
  }};
  CHECK(contains(fault_of<etude::DataError>([&] {
                   counts.fetch(Indices{1, 3});
                 }),
                 "the inputs must be the same"));
}

TEST_CASE("a collator gets the examples, and its batch is measured") {
  const etude::DataCollator pad = [](std::vector<etude::Example> examples) {
    std::vector<torch::Tensor> rows;
    for (const auto& example : examples) {
      rows.push_back(torch::constant_pad_nd(example.inputs[0], {0, 5 - example.inputs[0].size(0)}));
    }
    return Batch{torch::stack(rows), {}};
  };
  const Dataset ragged = Getting{[](std::int64_t i) { return torch::ones({i}); }};
  const auto batch = ragged.fetch(Indices{1, 3}, pad);
  CHECK(batch.size == 2);
  CHECK(batch.inputs.single().sum().item<double>() == 4);
  CHECK(contains(fault_of<etude::ArgumentError>([&] { Dataset(TorchBatches()).fetch(Indices{1}, pad); }),
                 "data_collator"));
}

TEST_CASE("a copy of a dataset shares its source, a worker's copy doesn't") {
  struct Counting {
    int calls = 0;
    int size() const { return 5; }
    torch::Tensor get(int) { return torch::full({}, ++calls); }
  };
  const Dataset dataset = Counting();
  const auto handle = dataset;
  dataset.fetch(Indices{0});
  CHECK(handle.fetch(Indices{0}).inputs.single().item<int>() == 2);
  const auto copy = dataset.copy_for_worker();
  CHECK(copy.fetch(Indices{0}).inputs.single().item<int>() == 3);
  CHECK(dataset.fetch(Indices{0}).inputs.single().item<int>() == 3);
  CHECK_THROWS_AS(Dataset(TorchStream()).copy_for_worker(), etude::DataError);
}

TEST_CASE("a dataset that is declared to be divided already has the same examples, in copies too") {
  const Dataset dataset(torch::arange(3), torch::arange(3));
  const auto part = etude::already_divided(dataset);
  CHECK(!dataset.is_divided());
  CHECK(part.is_divided());
  CHECK(part.copy_for_worker().is_divided());
  CHECK(part.size() == 3);
  CHECK(part.fingerprint() == dataset.fingerprint());
  CHECK(part.fetch(Indices{2}).inputs.single().item<int>() == 2);
}

}  // namespace data_dataset_test
