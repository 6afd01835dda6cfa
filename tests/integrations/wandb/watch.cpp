#include "etude/integrations/wandb/watch.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

namespace integrations_wandb_histogram_test {

using Json = nlohmann::json;

Json counts_of(const torch::Tensor& tensor) {
  const auto text = etude::detail::wandb_histogram(tensor);
  return text ? Json::parse(*text) : Json();
}

TEST_CASE("a histogram has 64 bins from the least to the greatest value, the last with its right edge") {
  const auto counted = counts_of(torch::arange(65, torch::kDouble));
  CHECK(counted["_type"] == "histogram");
  std::vector<int> counts(64, 1), edges(65);
  counts.back() = 2;  // 63 and 64
  for (std::size_t i = 0; i < edges.size(); ++i) edges[i] = static_cast<int>(i);
  CHECK(counted["values"] == counts);
  CHECK(counted["bins"] == edges);
}

TEST_CASE("equal values are one bin, and non-finite values are left out") {
  constexpr auto inf = std::numeric_limits<float>::infinity();
  CHECK(counts_of(torch::full({2, 3}, 0.5))["values"] == std::vector{6});
  CHECK(counts_of(torch::full({2, 3}, 0.5))["bins"] == std::vector{0.5, 0.5});
  CHECK(counts_of(torch::tensor({inf, 2.0F, -inf, std::nanf(""), 2.0F}))["values"] == std::vector{2});
  CHECK(counts_of(torch::tensor({inf, std::nanf("")})).is_null());
  CHECK(counts_of(torch::zeros({0})).is_null());
}

TEST_CASE("half precision and integers are counted too") {
  CHECK(counts_of(torch::arange(65).to(torch::kBFloat16))["values"][63] == 2);
  CHECK(counts_of(torch::arange(65, torch::kLong))["values"][0] == 1);
}

TEST_CASE("elements that a sparse tensor doesn't store count as zeros") {
  // Two of 10 elements are stored, -1 and 63. The bins have width 1 and begin at -1, so zeros are in the
  // second.
  const auto sparse = torch::sparse_coo_tensor(torch::tensor({{2, 7}}), torch::tensor({-1.0, 63.0}), {10});
  const auto counts = counts_of(sparse)["values"];
  CHECK(counts[0] == 1);
  CHECK(counts[1] == 8);
  CHECK(counts[63] == 1);
  const auto positive = torch::sparse_coo_tensor(torch::tensor({{2}}), torch::tensor({64.0}), {10});
  CHECK(counts_of(positive)["values"][0] == 9);
  CHECK(counts_of(positive)["bins"][0] == 0);
}

}  // namespace integrations_wandb_histogram_test
