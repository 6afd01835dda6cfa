#include "etude/model/loss_divisor.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "etude/model/loss.hpp"

namespace model_loss_divisor_test {

using etude::Loss;
using etude::LossDivisor;
using etude::LossReduction;
using etude::Tensors;

/// A mean loss with operands of 7 examples.
struct Case {
  std::string name;
  Loss loss;
  Tensors outputs, labels;
};

std::vector<Case> cases() {
  namespace nn = torch::nn;
  torch::manual_seed(1);
  const auto scores = torch::randn({7, 3}), other = torch::randn({7, 3}), third = torch::randn({7, 3});
  const auto shares = torch::softmax(torch::randn({7, 3}), 1),
             bits = torch::randint(2, {7, 3}).to(torch::kFloat);
  const auto classes = torch::tensor({0, -100, 2, 1, -100, 2, 2}, torch::kLong);
  const auto signs = torch::tensor({1., -1., 1., 1., -1., 1., -1.}, torch::kFloat);
  const auto weight = torch::tensor({0.2, 3.0, 0.7});
  const auto pixels = torch::randint(3, {7, 2, 2});
  const auto all_classes = torch::tensor({0, 1, 2, 1, 0, 2, 2}, torch::kLong);
  const auto sets = torch::tensor(
      {{0, 2, -1}, {1, -1, -1}, {2, 1, 0}, {0, -1, -1}, {1, 2, -1}, {2, -1, -1}, {0, 1, -1}}, torch::kLong);
  const auto lengths = torch::tensor({1, 2, 3, 1, 2, 1, 3}, torch::kLong);
  return {
      {"MSE", nn::MSELoss(), scores, other},
      {"L1", nn::L1Loss(), scores, other},
      {"SmoothL1", nn::SmoothL1Loss(), scores, other},
      {"Huber", nn::HuberLoss(), scores, other},
      {"BCE", nn::BCELoss(), shares, bits},
      {"BCEWithLogits", nn::BCEWithLogitsLoss(nn::BCEWithLogitsLossOptions().pos_weight(weight)), scores,
       bits},
      {"BCEWithLogits, weight", nn::BCEWithLogitsLoss(nn::BCEWithLogitsLossOptions().weight(weight)), scores,
       bits},
      {"KLDiv", nn::KLDivLoss(), shares.log(), torch::softmax(other, 1)},
      {"KLDiv, batchmean", nn::KLDivLoss(nn::KLDivLossOptions().reduction(torch::kBatchMean)), shares.log(),
       torch::softmax(other, 1)},
      {"PoissonNLL", nn::PoissonNLLLoss(), scores, bits},
      {"SoftMargin", nn::SoftMarginLoss(), scores, 2 * bits - 1},
      {"HingeEmbedding", nn::HingeEmbeddingLoss(), scores, 2 * bits - 1},
      {"MarginRanking", nn::MarginRankingLoss(), {scores.select(1, 0), other.select(1, 0)}, signs},
      {"CosineEmbedding", nn::CosineEmbeddingLoss(), {scores, other}, signs},
      {"TripletMargin", nn::TripletMarginLoss(), {scores, other}, third},
      {"TripletMarginWithDistance", nn::TripletMarginWithDistanceLoss(), {scores, other}, third},
      {"CrossEntropy", nn::CrossEntropyLoss(), scores, classes},
      {"CrossEntropy, weight", nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().weight(weight)), scores,
       classes},
      {"CrossEntropy, ignore_index",
       nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().weight(weight).ignore_index(2)), scores,
       all_classes},
      {"CrossEntropy, label_smoothing",
       nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().label_smoothing(0.2)), scores, classes},
      {"CrossEntropy, label_smoothing and weight",
       nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().label_smoothing(0.2).weight(weight)), scores,
       all_classes},
      {"CrossEntropy of pixels", nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().weight(weight)),
       torch::randn({7, 3, 2, 2}), pixels},
      {"CrossEntropy of shares", nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().weight(weight)), scores,
       shares},
      {"CrossEntropy of shares of pixels", nn::CrossEntropyLoss(), torch::randn({7, 3, 2, 2}),
       torch::softmax(torch::randn({7, 3, 2, 2}), 1)},
      {"CrossEntropy of bytes", nn::CrossEntropyLoss(), scores, all_classes.to(torch::kByte)},
      {"NLL", nn::NLLLoss(nn::NLLLossOptions().weight(weight)), scores, classes},
      {"MultiMargin", nn::MultiMarginLoss(nn::MultiMarginLossOptions().weight(weight)), scores, all_classes},
      {"MultiLabelMargin", nn::MultiLabelMarginLoss(), scores, sets},
      {"MultiLabelSoftMargin",
       nn::MultiLabelSoftMarginLoss(nn::MultiLabelSoftMarginLossOptions().weight(weight)), scores, bits},
  };
}

double value(const Case& of, std::int64_t from, std::int64_t to) {
  const auto rows = [&](const torch::Tensor& tensor) { return tensor.slice(0, from, to); };
  return of.loss(of.outputs.transform(rows), of.labels.transform(rows)).item<double>();
}

double divisor(const Case& of, std::int64_t from, std::int64_t to) {
  return of.loss.divisor(of.labels.transform([&](const auto& tensor) { return tensor.slice(0, from, to); }))
      .read();
}

TEST_CASE("a mean is that of its parts, weighted by their divisors, for each loss module of LibTorch") {
  for (const auto& each : cases()) {
    CAPTURE(each.name);
    CHECK(each.loss.reduction() == LossReduction::mean);
    double sum = 0, divisors = 0;
    for (const auto& [from, to] : {std::pair(0, 1), {2, 4}, {4, 7}}) {
      sum += value(each, from, to) * divisor(each, from, to);
      divisors += divisor(each, from, to);
    }
    if (divisor(each, 1, 2) > 0) {
      sum += value(each, 1, 2) * divisor(each, 1, 2);
      divisors += divisor(each, 1, 2);
    }
    CHECK(divisors == doctest::Approx(divisor(each, 0, 7)));
    CHECK(sum / divisors == doctest::Approx(value(each, 0, 7)).epsilon(1e-5));
  }
}

TEST_CASE("the mean of CTC is one over examples, whose number the lengths of the targets have") {
  torch::manual_seed(2);
  const auto log_probabilities = torch::randn({8, 5, 4}).log_softmax(2);
  const auto targets = torch::randint(1, 4, {5, 3});
  const auto inputs = torch::full({5}, 8, torch::kLong), lengths = torch::tensor({1, 3, 2, 3, 1});
  const Loss loss = torch::nn::CTCLoss();
  const auto of = [&](std::int64_t from, std::int64_t to) {
    const Tensors labels{targets.slice(0, from, to), inputs.slice(0, from, to), lengths.slice(0, from, to)};
    return loss(log_probabilities.slice(1, from, to), labels).item<double>() * loss.divisor(labels).read();
  };
  CHECK(of(0, 2) + of(2, 5) == doctest::Approx(of(0, 5)).epsilon(1e-5));
  CHECK(loss.divisor(Tensors{targets, inputs, lengths}).read() == 5);
}

TEST_CASE("labels that are ignored, and classes without weight, count for nothing") {
  const auto classes = torch::tensor({0, 1, 1, -100, 2, 0, 1}, torch::kLong);
  const Loss plain = torch::nn::CrossEntropyLoss();
  CHECK(plain.divisor(classes).read() == 6);
  CHECK(plain.divisor(classes.slice(0, 3, 4)).read() == 0);
  const auto weight = torch::tensor({0.5, 0.0, 2.0});
  const Loss weighted = torch::nn::CrossEntropyLoss(torch::nn::CrossEntropyLossOptions().weight(weight));
  CHECK(weighted.divisor(classes).read() == 3);  // 0.5, 0, 0, ignored, 2, 0.5, 0
  CHECK(weighted.divisor(classes.slice(0, 1, 3)).read() == 0);
  // uint8 can't hold -100; 156 has the same bits.
  CHECK(plain.divisor(torch::tensor({156, 1}, torch::kByte)).read() == 2);
  CHECK(etude::count_items(torch::tensor({156, 1}, torch::kByte)) == 2);
}

struct MineImpl : torch::nn::MSELossImpl {
  torch::Tensor forward(const torch::Tensor& output, const torch::Tensor& target) {
    return (output - target).square().max();
  }
};
TORCH_MODULE(Mine);

TEST_CASE("sums add up, and nothing is known of what isn't LibTorch's own") {
  CHECK(Loss(torch::nn::MSELoss(torch::kSum)).reduction() == LossReduction::sum);
  CHECK(Loss(torch::nn::CrossEntropyLoss(torch::nn::CrossEntropyLossOptions().reduction(torch::kSum)))
            .reduction() == LossReduction::sum);
  CHECK(Loss(torch::nn::KLDivLoss(torch::nn::KLDivLossOptions().reduction(torch::kSum))).reduction() ==
        LossReduction::sum);
  CHECK(Loss(torch::nn::MSELoss(torch::kNone)).reduction() == LossReduction::unknown);
  CHECK(Loss(Mine()).reduction() == LossReduction::unknown);
  CHECK(Loss([](const torch::Tensor& a, const torch::Tensor&) { return a.mean(); }).reduction() ==
        LossReduction::unknown);
}

TEST_CASE("options that are changed later count") {
  torch::nn::CrossEntropyLoss module;
  const Loss loss = module;
  const auto classes = torch::tensor({0, 1, 1}, torch::kLong);
  module->options.ignore_index(1);
  CHECK(loss.divisor(classes).read() == 1);
  module->options.reduction(torch::kSum);
  CHECK(loss.reduction() == LossReduction::sum);
}

TEST_CASE("divisors on a device are not read, or would fail on one that has no values") {
  const auto labels = torch::zeros({4}, torch::kLong).to(torch::kMeta);
  const auto weight = torch::ones({3});
  const Loss loss = torch::nn::CrossEntropyLoss(torch::nn::CrossEntropyLossOptions().weight(weight));
  auto whole = loss.divisor(labels);
  const auto part = loss.divisor(labels);
  whole += part;
  whole += LossDivisor(2.0);
  CHECK_FALSE(whole.number());
  const auto output = torch::ones({4, 3}, torch::kMeta).requires_grad_();
  const auto share = etude::detail::share_of_mean(output.mean(), output, part, whole);
  CHECK(share.dim() == 0);
  CHECK(share.requires_grad());
  CHECK_THROWS(whole.read());
}

TEST_CASE("the share of a mean is its part of the whole's, and 0 without items, with gradients of 0") {
  const auto output = torch::tensor({1.0, 2.0}, torch::requires_grad());
  const auto share = [&](const torch::Tensor& loss, double part, double whole) {
    return etude::detail::share_of_mean(loss, output, LossDivisor(part), LossDivisor(whole));
  };
  CHECK(share(torch::tensor(6.0), 1, 3).item<double>() == doctest::Approx(2));
  const auto loss = output.mean();
  CHECK(share(loss, 3, 3).is_same(loss));
  const auto nothing = share((output / 0.0 * 0.0).sum(), 0, 3);
  CHECK(nothing.item<double>() == 0);
  nothing.backward();
  CHECK(torch::equal(output.grad(), torch::zeros({2})));
  CHECK(std::isnan(share((output / 0.0 * 0.0).sum(), 0, 0).item<double>()));
}

}  // namespace model_loss_divisor_test
