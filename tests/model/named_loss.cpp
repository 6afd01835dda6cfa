#include "etude/model/named_loss.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"

namespace model_named_loss_test {

using etude::LossName;
using etude::named_loss;

double loss(LossName name, const torch::Tensor& output, const torch::Tensor& labels) {
  return named_loss(name)(etude::Tensors(output), etude::Tensors(labels)).item<double>();
}

// Two outputs, 3 and -1, for the labels 1 and 1.5: errors of 2 and -2.5.
TEST_CASE("losses for numbers are means over the elements") {
  const auto output = torch::tensor({3.0f, -1.0f}), labels = torch::tensor({1.0f, 1.5f});
  CHECK(loss(LossName::mse, output, labels) == doctest::Approx((4 + 6.25) / 2));
  CHECK(loss(LossName::l1, output, labels) == doctest::Approx((2 + 2.5) / 2));
  CHECK(loss(LossName::huber, output, labels) == doctest::Approx((1.5 + 2) / 2));
  CHECK(loss(LossName::smooth_l1, output, labels) == doctest::Approx((1.5 + 2) / 2));
  const auto bits = torch::tensor({1, 0});
  CHECK(loss(LossName::bce_with_logits, output, bits) ==
        doctest::Approx((std::log1p(std::exp(-3.0)) + std::log1p(std::exp(-1.0))) / 2));
}

TEST_CASE(
    "labels that are numbers are converted to the output's type, and to its shape if only sizes of 1 "
    "differ") {
  const auto output = torch::tensor({3.0f, -1.0f}).view({2, 1}), labels = torch::tensor({1.0, 1.5});
  CHECK(loss(LossName::mse, output, labels) == doctest::Approx((4 + 6.25) / 2));
  CHECK(toy::fault_of<etude::DataError>([&] {
          loss(LossName::mse, output, torch::ones({2, 3}));
        }) == "the output is float32 [2, 1], but the labels are float32 [2, 3]: must have the same shape");
}

// Scores of log 1, log 3: the probabilities are 1/4 and 3/4.
TEST_CASE("cross entropy takes classes or probabilities, and ignores -100") {
  const auto scores = torch::tensor({1.0f, 3.0f}).log().expand({3, 2});
  CHECK(loss(LossName::cross_entropy, scores, torch::tensor({0, 1, -100}, torch::kInt)) ==
        doctest::Approx((std::log(4.0) + std::log(4.0 / 3)) / 2));
  CHECK(loss(LossName::cross_entropy, scores.narrow(0, 0, 1), torch::tensor({{0.5f, 0.5f}})) ==
        doctest::Approx((std::log(4.0) + std::log(4.0 / 3)) / 2 / 2));
  CHECK(toy::contains(toy::fault_of<etude::DataError>([&] {
                        loss(LossName::cross_entropy, scores, torch::ones({3, 2}, torch::kLong));
                      }),
                      "cross_entropy takes scores [N, ..., classes]"));
}

TEST_CASE("the model's own loss has no function, and needs labels that the model takes") {
  CHECK_FALSE(named_loss(LossName::model));
  CHECK(etude::takes_numbers(LossName::mse));
  CHECK_FALSE(etude::takes_numbers(LossName::cross_entropy));
  CHECK_FALSE(etude::takes_numbers(LossName::model));
  etude::check_loss(LossName::model, {"ids", "labels"}, /*takes_labels=*/true);
  etude::check_loss(LossName::mse, {"ids"}, /*takes_labels=*/false);
  CHECK(toy::contains(
      toy::fault_of<etude::ArgumentError>([] {
        etude::check_loss(LossName::model, {"ids", "mask"}, false);
      }),
      "loss is model, but the model takes no labels (it takes ids, mask): must be one of cross_entropy"));
}

}  // namespace model_named_loss_test
