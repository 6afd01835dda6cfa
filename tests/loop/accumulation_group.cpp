#include "etude/loop/accumulation_group.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "etude/data/batch.hpp"

namespace loop_accumulation_group_test {

etude::Batch batch_of(std::int64_t size) { return {torch::arange(size), {}, size}; }

TEST_CASE("the counts of a group start over with the next one") {
  etude::AccumulationGroup group;
  CHECK(group.size() == 1);
  group.begin(2);
  CHECK_FALSE(group.num_items());
  group.add_items(0);
  CHECK(group.num_items() == 0);
  for (int i = 0; i < 2; ++i) {
    group.add_items(5);
    group.tokens += 7;
    group.floating_point_ops += 0.5;
  }
  CHECK(group.num_items() == 10);
  CHECK(group.tokens == 14);
  CHECK(group.floating_point_ops == 1);
  group.begin(3);
  CHECK(group.size() == 3);
  CHECK_FALSE(group.num_items());
  CHECK(group.tokens == 0);
  CHECK(group.floating_point_ops == 0);
}

TEST_CASE("losses of micro-batches and of their parts add up to the mean over the examples") {
  etude::AccumulationGroup group;
  group.begin(2);
  CHECK(group.share() == 0.5);
  CHECK(group.share_of(torch::tensor(3.0)).item<double>() == 1.5);
  std::vector<std::int64_t> sizes;
  std::vector<double> shares;
  double sum = 0;
  group.in_parts(batch_of(4), 3, [&](const etude::Batch& part) {
    sizes.push_back(part.size);
    shares.push_back(group.share().value());
    sum += group.share_of(part.inputs[0].to(torch::kDouble).mean()).item<double>();
  });
  CHECK(sizes == std::vector<std::int64_t>{3, 1});
  CHECK(shares == std::vector{0.375, 0.125});
  CHECK(sum == doctest::Approx(0.5 * (0 + 1 + 2 + 3) / 4));
  CHECK(group.share() == 0.5);
}

TEST_CASE("a group that begins again has neither losses nor a part under way") {
  etude::AccumulationGroup group;
  group.begin(1);
  try {
    group.in_parts(batch_of(4), 1, [&](const etude::Batch&) {
      group.add_loss(torch::tensor(1.0));
      if (group.losses().size() == 2) throw std::runtime_error("memory");
    });
  } catch (const std::runtime_error&) {
  }
  CHECK(group.losses().size() == 2);
  CHECK(group.share() == 0.25);
  group.forget_losses();
  CHECK(group.losses().empty());
  CHECK(group.share() == 1);
}

}  // namespace loop_accumulation_group_test
