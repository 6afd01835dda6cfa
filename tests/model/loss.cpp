#include "etude/model/loss.hpp"
#include "etude/base/error.hpp"

#include <doctest/doctest.h>

#include <torch/nn/modules/loss.h>
#include <cmath>

#include "common/fault_of.hpp"

namespace model_loss_test {

using etude::Loss;
using etude::Tensors;
using toy::contains;
using toy::fault_of;

torch::Tensor ones(std::int64_t size) { return torch::ones({size}); }

torch::Tensor difference(const torch::Tensor& output, const torch::Tensor& target) {
  return (output - target).sum();
}

TEST_CASE("torch's loss modules are losses") {
  const Loss loss = torch::nn::CrossEntropyLoss();
  // Equal logits: log 4, whatever the label.
  CHECK(loss(torch::zeros({2, 4}), torch::zeros({2}, torch::kLong)).item<double>() ==
        doctest::Approx(1.386294));
  CHECK_FALSE(loss.counts_items());
  CHECK(loss.module() != nullptr);
  const Loss pointer = std::make_shared<torch::nn::MSELossImpl>();
  CHECK(pointer(ones(3) * 3, ones(3)).item<double>() == 4);
  CHECK_FALSE(bool(Loss()));
  CHECK(bool(loss));
}

TEST_CASE("a loss module with more than two tensors gets the outputs and then the labels") {
  const Loss loss = torch::nn::TripletMarginLoss();
  const auto anchor = torch::zeros({1, 2}), near = torch::zeros({1, 2}), far = torch::full({1, 2}, 0.3);
  // max(d(anchor, near) - d(anchor, far) + 1, 0), with sqrt(2 * 0.09) as the distance to far.
  CHECK(loss({anchor, near}, far).item<double>() == doctest::Approx(1 - 0.424264).epsilon(1e-4));
  CHECK(contains(fault_of<etude::DataError>([&] { loss(anchor, far); }), "2 tensors"));
}

TEST_CASE("callables of every allowed form are losses") {
  const Loss function = difference;
  const Loss lambda = [](torch::Tensor output, torch::Tensor target) { return difference(output, target); };
  const Loss generic = [](const auto& output, const auto& target) { return (output - target).sum(); };
  const Loss named = [](const Tensors& outputs, const Tensors& labels) {
    return difference(outputs, labels);
  };
  const Loss wrapped = std::function<torch::Tensor(torch::Tensor, torch::Tensor)>(difference);
  for (const auto& loss : {function, lambda, generic, named, wrapped}) {
    CHECK(loss(ones(3) * 2, ones(3)).item<double>() == 3);
    CHECK_FALSE(loss.counts_items());
    CHECK(loss.module() == nullptr);
  }
}

TEST_CASE("a loss that takes several outputs and labels gets them") {
  const Loss all = [](const Tensors& outputs, const Tensors& labels) {
    return difference(outputs.at("a"), labels[0]) + difference(outputs.at("b"), labels[1]);
  };
  const Tensors outputs({ones(2) * 2, ones(2) * 5}, {"a", "b"});
  CHECK(all(outputs, {ones(2), ones(2)}).item<double>() == 10);
  const Loss single = difference;
  CHECK(contains(fault_of<etude::DataError>([&] { single(outputs, ones(2)); }),
                 "2 outputs: a: float32 [2], b: float32 [2]"));
  CHECK(contains(fault_of<etude::DataError>([&] { single(ones(2), Tensors()); }), "0 labels"));
  const Loss mixed = [](const Tensors& outs, const torch::Tensor& target) {
    return difference(outs.at("b"), target);
  };
  CHECK(mixed(outputs, ones(2)).item<double>() == 8);
}

TEST_CASE("a third parameter is the number of items") {
  const Loss as_double = [](const torch::Tensor& o, const torch::Tensor&, double n) { return o.sum() / n; };
  const Loss as_int = [](const torch::Tensor& o, const torch::Tensor&, std::int64_t n) {
    return o.sum() / n;
  };
  const Loss as_optional = [](const torch::Tensor& o, const torch::Tensor&, std::optional<double> n) {
    return n ? o.sum() / *n : o.mean();
  };
  const auto labels = torch::tensor({1, 2, -100, -100}, torch::kLong);
  for (const auto& loss : {as_double, as_int, as_optional}) {
    CHECK(loss.counts_items());
    CHECK(loss(ones(4), labels, 8.0).item<double>() == 0.5);
  }
  CHECK(as_double(ones(4), labels).item<double>() == 2);
  CHECK(as_int(ones(4), labels).item<double>() == 2);
  CHECK(as_optional(ones(4), labels).item<double>() == 1);
  struct Counting : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& o, const torch::Tensor&, double n) { return o.sum() / n; }
  };
  const Loss module = std::make_shared<Counting>();
  CHECK(module.counts_items());
  CHECK(module(ones(4), labels, 8.0).item<double>() == 0.5);
}

TEST_CASE("items are the labels that aren't masked") {
  CHECK(etude::count_items(torch::tensor({1, -100, 3}, torch::kLong)) == 2);
  CHECK(etude::count_items(torch::full({5}, -100.0)) == 5);
  CHECK(etude::count_items(Tensors()) == 0);
}

TEST_CASE("a loss must be one element") {
  const Loss none = torch::nn::MSELoss(torch::nn::MSELossOptions().reduction(torch::kNone));
  const auto text = fault_of<etude::DataError>([&] { none(ones(3), ones(3)); });
  CHECK(contains(text, "float32 [3]"));
  CHECK(contains(text, "must be one element; reduce it (mean or sum)"));
  const Loss undefined = [](torch::Tensor, torch::Tensor) { return torch::Tensor(); };
  CHECK_THROWS_AS(undefined(ones(1), ones(1)), etude::DataError);
  const Loss one = [](torch::Tensor output, torch::Tensor) { return output.sum().reshape({1, 1}); };
  CHECK(one(ones(3), ones(3)).dim() == 0);
}

TEST_CASE("torch's losses don't silently compare every output with every target") {
  const auto column = torch::ones({4, 1}), row = torch::ones({4});
  for (const Loss& loss : {Loss(torch::nn::MSELoss()), Loss(torch::nn::L1Loss()),
                           Loss(torch::nn::SmoothL1Loss()), Loss(torch::nn::HuberLoss())}) {
    const auto text = fault_of<etude::DataError>([&] { loss(column, row); });
    CHECK(contains(text, "float32 [4, 1]"));
    CHECK(contains(text, "float32 [4]"));
    CHECK(loss(row, row).item<double>() == 0);
  }
  CHECK(fault_of<etude::DataError>([&] {
          Loss{torch::nn::MSELoss()}(column, row);
        }).ends_with("; give the labels another dimension with .unsqueeze(-1)"));
  CHECK(fault_of<etude::DataError>([&] {
          Loss{torch::nn::MSELoss()}(row, column);
        }).ends_with("; take the last dimension off with .squeeze(-1)"));
  // A single target for several outputs is refused too.
  CHECK_THROWS_AS(Loss{torch::nn::MSELoss()}(row, torch::ones({1})), etude::DataError);
  // A user's loss may broadcast on purpose.
  const Loss own = [](torch::Tensor output, torch::Tensor target) { return (output - target).sum(); };
  CHECK(own(column, row).item<double>() == 0);
}

TEST_CASE("classification losses report which labels they need") {
  for (const Loss& loss : {Loss(torch::nn::CrossEntropyLoss()), Loss(torch::nn::NLLLoss())}) {
    const auto scores = torch::ones({4, 3});
    const auto refusal = [&](const torch::Tensor& labels) {
      return fault_of<etude::DataError>([&] { loss(scores, labels); });
    };
    CHECK(contains(refusal(torch::zeros({4})),
                   "needs class indices as labels: int64 [4] for the output float32 [4, 3], not float32 [4]; "
                   "convert them with .to(torch::kLong)"));
    CHECK(contains(refusal(torch::zeros({4}, torch::kInt)), "not int32 [4]; convert them"));
    CHECK(refusal(torch::zeros({4, 1}, torch::kLong))
              .ends_with("not int64 [4, 1]; take the last dimension off with .squeeze(-1)"));
    CHECK(refusal(torch::zeros({4, 3}, torch::kLong))
              .ends_with("not int64 [4, 3]; convert one-hot labels to class indices with .argmax(1)"));
    CHECK(refusal(torch::zeros({3}, torch::kLong)).ends_with("not int64 [3]"));
    CHECK(loss(scores, torch::zeros({4}, torch::kLong)).dim() == 0);
    CHECK(loss(torch::ones({4, 3, 5}), torch::zeros({4, 5}, torch::kLong)).dim() == 0);
  }
  const Loss shares = torch::nn::CrossEntropyLoss();
  CHECK(shares(torch::zeros({4, 3}), torch::full({4, 3}, 1 / 3.)).item<double>() ==
        doctest::Approx(std::log(3)));
  const Loss numbers = torch::nn::NLLLoss();
  CHECK_THROWS_AS(numbers(torch::zeros({4, 3}), torch::full({4, 3}, 1 / 3.)), etude::DataError);
}

TEST_CASE("regression losses need labels of their output's type") {
  for (const Loss& loss : {Loss(torch::nn::MSELoss()), Loss(torch::nn::L1Loss()), Loss(torch::nn::BCELoss()),
                           Loss(torch::nn::BCEWithLogitsLoss())}) {
    const auto column = torch::ones({4, 1});
    const auto refusal = [&](torch::ScalarType type) {
      return fault_of<etude::DataError>([&] { loss(column, column.to(type)); });
    };
    CHECK(contains(refusal(torch::kLong),
                   "needs labels of the same type as its output: float32 [4, 1], not int64 [4, 1]"));
    CHECK(contains(refusal(torch::kDouble), "not float64 [4, 1]; convert them with .to(torch::kFloat)"));
    CHECK(loss(column, column).dim() == 0);
    CHECK(loss(column.to(torch::kDouble), column.to(torch::kDouble)).dim() == 0);
  }
}

TEST_CASE("empty losses are refused") {
  CHECK_THROWS_AS(Loss(std::shared_ptr<torch::nn::MSELossImpl>()), etude::ArgumentError);
  CHECK_THROWS_AS(Loss(torch::nn::MSELoss(nullptr)), etude::ArgumentError);
  CHECK_THROWS_AS(Loss(std::function<torch::Tensor(torch::Tensor, torch::Tensor)>()), etude::ArgumentError);
}

}  // namespace model_loss_test
