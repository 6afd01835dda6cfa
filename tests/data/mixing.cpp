#include "etude/data/mixing.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <doctest/doctest.h>
#include <torch/types.h>

#include <cmath>
#include <string>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/data/data_loader.hpp"

namespace data_mixup_test {

using etude::ArgumentError;
using etude::Batch;
using etude::DataError;
using etude::MixingOptions;
using toy::contains;

at::Generator generator(std::uint64_t seed) { return at::detail::createCPUGenerator(seed); }

// Example i is an image filled with i, of class i.
Batch images(std::int64_t n, std::int64_t height = 6, std::int64_t width = 5) {
  const auto labels = torch::arange(n);
  return etude::make_batch(
      labels.to(torch::kFloat).reshape({n, 1, 1, 1}).expand({n, 3, height, width}).clone(), labels);
}

TEST_CASE("mixup blends an example with the one before it, and their labels, in the same proportion") {
  auto own = generator(1);
  const auto batch = etude::mix_up(images(4), {.num_classes = 5}, own);
  CHECK(batch.size == 4);
  const auto& labels = batch.labels[0];
  CHECK(labels.sizes() == std::vector<std::int64_t>{4, 5});
  CHECK((labels.scalar_type() == torch::kFloat));
  const auto share = labels[0][0].item<double>();
  CHECK(share > 0.01);
  CHECK(share < 0.99);
  for (std::int64_t i = 0; i < 4; ++i) {
    const auto before = (i + 3) % 4;
    auto expected = torch::zeros({5});
    expected[i] = share;
    expected[before] = 1 - share;
    CHECK(labels[i].allclose(expected));
    const auto value = share * static_cast<double>(i) + (1 - share) * static_cast<double>(before);
    CHECK(batch.inputs[0][i].allclose(torch::full({3, 6, 5}, value)));
  }
}

TEST_CASE("proportions are drawn from Beta(alpha, alpha)") {
  for (const double alpha : {0.2, 1.0, 4.0}) {
    auto own = generator(2);
    double sum = 0, squares = 0;
    const int draws = 3000;
    for (int i = 0; i < draws; ++i) {
      const auto batch = etude::mix_up(images(2, 1, 1), {.alpha = alpha, .num_classes = 2}, own);
      const auto share = batch.labels[0][0][0].item<double>() - 0.5;
      sum += share;
      squares += share * share;
    }
    // The variance is 1 / (4 (2 alpha + 1)). Its estimate has a standard deviation below 0.004 for each alpha
    // here.
    CHECK(std::abs(sum / draws) < 0.035);
    CHECK(squares / draws == doctest::Approx(0.25 / (2 * alpha + 1)).epsilon(0.1));
  }
}

TEST_CASE("CutMix fills a rectangle from the example before, and mixes labels by area") {
  auto own = generator(3);
  bool cut_some = false;
  for (int i = 0; i < 50; ++i) {
    const auto original = images(3);
    const auto batch = etude::cut_mix(original, {.num_classes = 3}, own);
    CHECK(original.inputs[0].equal(images(3).inputs[0]));
    const auto& mixed = batch.inputs[0];
    const auto is_other = mixed[1][0].eq(0);
    CHECK(mixed[1].eq(1).logical_or(mixed[1].eq(0)).all().item<bool>());
    // The same box in each channel and example.
    for (std::int64_t n = 0; n < 3; ++n) {
      const auto other = torch::full({3, 6, 5}, static_cast<double>((n + 2) % 3));
      CHECK(mixed[n].equal(torch::where(is_other, other, images(3).inputs[0][n])));
    }
    // The changed pixels form a rectangle: every pixel that lies in its rows and its columns is changed.
    CHECK(is_other.equal(is_other.any(1, true).logical_and(is_other.any(0, true))));
    const auto area = is_other.sum().item<double>() / 30;
    CHECK(batch.labels[0].allclose(torch::eye(3) * (1 - area) + torch::eye(3).roll(1, 0) * area));
    cut_some = cut_some || (area > 0.1 && area < 0.9);
  }
  CHECK(cut_some);
}

TEST_CASE("only a share of the batches is mixed, and all labels are probabilities") {
  auto own = generator(4);
  int mixed = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto batch = etude::mix_up(images(2), {.num_classes = 2, .probability = 0.25}, own);
    CHECK(batch.labels[0].sizes() == std::vector<std::int64_t>{2, 2});
    mixed += !batch.labels[0].equal(torch::eye(2));
  }
  CHECK(std::abs(mixed - 250) < 70);  // a standard deviation is 14
}

TEST_CASE("floating-point labels are mixed directly") {
  auto own = generator(5);
  const auto batch =
      etude::mix_up(etude::make_batch(torch::tensor({0.f, 1.f}), torch::tensor({10.f, 20.f})), {}, own);
  CHECK(batch.labels[0].allclose(batch.inputs[0] * 10 + 10));
  CHECK(!batch.inputs[0].equal(torch::tensor({0.f, 1.f})));
}

TEST_CASE("batches that can't be mixed are refused") {
  const auto fault = [](Batch batch, MixingOptions options = {.num_classes = 3}) {
    return toy::fault_of<DataError>([&] {
      auto own = generator(1);
      etude::cut_mix(std::move(batch), options, own);
    });
  };
  CHECK(fault(etude::make_batch(torch::arange(3), torch::arange(3))) ==
        "only one floating-point input can be mixed, not int64 [3]");
  CHECK(fault(etude::make_batch(torch::rand({3}), {})) == "only one label can be mixed, not no tensors");
  CHECK(contains(fault(etude::make_batch(torch::rand({3, 4}), torch::arange(3))), "CutMix needs images"));
  CHECK(fault(images(4)) == "labels are from 0 to 3: must be from 0 to 2, below num_classes");
  CHECK(contains(fault(images(3), {}), "labels are int64 [3], num_classes is 0: must be int64 [N]"));
  const auto wrong = [](MixingOptions options) {
    return toy::fault_of<ArgumentError>([&] { etude::mix_up(images(2), options); });
  };
  CHECK(wrong({.alpha = 0}) == "alpha is 0: must be above 0 and finite");
  CHECK(contains(wrong({.alpha = NAN}), "alpha is nan"));
  CHECK(wrong({.probability = 1.5}) == "probability is 1.5: must be from 0 to 1");
  CHECK(wrong({.num_classes = -1}) == "num_classes is -1: must be at least 0");
}

TEST_CASE("in a collator the mixed batches are the same with any number of workers") {
  const auto all = images(20);
  const auto mixed = [&](int workers) {
    etude::DataLoader loader(
        etude::Dataset(all.inputs, all.labels),
        {.batch_size = 3,
         .shuffle = true,
         .num_workers = workers,
         .collator = [](const std::vector<etude::Example>& examples) {
           return etude::cut_mix(etude::mix_up(etude::default_data_collator(examples), {.num_classes = 20}),
                                 {});
         }});
    std::vector<torch::Tensor> result;
    auto stream = loader.begin_epoch(1);
    while (const auto batch = stream.next()) {
      result.push_back(batch->inputs[0]);
      result.push_back(batch->labels[0]);
    }
    return result;
  };
  const auto expected = mixed(0);
  REQUIRE(expected.size() == 14);
  for (const int workers : {1, 4}) {
    const auto found = mixed(workers);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i].equal(expected[i]));
  }
}

}  // namespace data_mixup_test
