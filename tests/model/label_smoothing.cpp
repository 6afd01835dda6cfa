#include "etude/model/label_smoothing.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <optional>

#include "common/fault_of.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace model_label_smoothing_test {

torch::Tensor logits() {
  return torch::tensor({{{1., 2., 0.5}, {0., -1., 3.}}, {{2., 2., 2.}, {0.1, 0.2, 0.3}}}, torch::kDouble);
}
torch::Tensor labels() { return torch::tensor({{1, -100}, {0, 2}}); }

/// A model that returns the same scores for any input, and computes its loss itself.
struct ScoresImpl : torch::nn::Module {
  torch::Tensor scores = register_parameter("scores", logits());
  std::map<std::string, torch::Tensor> forward(torch::Tensor) {
    return {{"loss", scores.sum()}, {"logits", scores}};
  }
};
TORCH_MODULE(Scores);

struct PlainScoresImpl : torch::nn::Module {
  torch::Tensor scores = register_parameter("scores", logits());
  torch::Tensor forward(torch::Tensor) { return scores.reshape({-1, 3}); }
};
TORCH_MODULE(PlainScores);

double evaluated(etude::TrainerOptions options) {
  etude::Trainer<etude::NoDefaultCallbacks> trainer(std::move(options));
  return trainer.evaluate()["eval_loss"];
}

etude::TrainingArguments smoothing(double factor) {
  auto args = toy::arguments();
  args.per_device_eval_batch_size = 8;
  args.label_smoothing_factor = factor;
  return args;
}

TEST_CASE("smoothed cross entropy has the values of Hugging Face's LabelSmoother") {
  // transformers 5, LabelSmoother(epsilon)({"logits": logits}, labels)
  CHECK(etude::label_smoothed_cross_entropy(logits(), labels(), 0.1).item<double>() ==
        doctest::Approx(0.8860857512880475).epsilon(1e-6));
  CHECK(etude::label_smoothed_cross_entropy(logits(), labels(), 0.3).item<double>() ==
        doctest::Approx(0.9483079880951044).epsilon(1e-6));
}

TEST_CASE("with a number of items, the loss is their sum divided by it") {
  const auto mean = etude::label_smoothed_cross_entropy(logits(), labels(), 0.1).item<double>();
  CHECK(etude::label_smoothed_cross_entropy(logits(), labels(), 0.1, 6.0).item<double>() ==
        doctest::Approx(mean * 3 / 6));
}

TEST_CASE("labels of another shape or kind are refused by name") {
  const auto fault = [](const torch::Tensor& bad) {
    return toy::fault_of<etude::DataError>([&] { etude::label_smoothed_cross_entropy(logits(), bad, 0.1); });
  };
  CHECK(fault(torch::zeros({2}, torch::kLong)).find("int64 [2]") != std::string::npos);
  CHECK(fault(torch::zeros({2, 2})).find("float32 [2, 2]") != std::string::npos);
}

TEST_CASE("label_smoothing_factor smooths the loss of a model that computes its own") {
  const auto x = torch::zeros({2, 1});
  auto options = [&](double factor) {
    return etude::TrainerOptions{
        .model = Scores(), .args = smoothing(factor), .eval_dataset = etude::Dataset(x, labels())};
  };
  CHECK(evaluated(options(0)) == doctest::Approx(12.1));
  CHECK(evaluated(options(0.1)) == doctest::Approx(0.8860857512880475).epsilon(1e-6));
}

/// A model whose scores predict the next label.
struct NextScoresImpl : ScoresImpl {
  etude::LossItems loss_items() const { return etude::LossItems::shifted_labels; }
};
TORCH_MODULE(NextScores);

TEST_CASE("labels are shifted before they are smoothed if the model's own loss shifts them") {
  const etude::TrainerOptions options{.model = NextScores(),
                                      .args = smoothing(0.1),
                                      .eval_dataset = etude::Dataset(torch::zeros({2, 1}), labels())};
  // Only the label 2 is left, and the scores before it are equal.
  CHECK(evaluated(options) == doctest::Approx(std::log(3.0)).epsilon(1e-6));

  struct CallsBase : etude::TrainerBase<CallsBase, etude::NoDefaultCallbacks> {
    using TrainerBase::TrainerBase;
    etude::LossOutput compute_loss(const etude::Batch& batch, std::optional<double> num_items) {
      return TrainerBase::compute_loss(batch, num_items);
    }
  };
  CHECK(CallsBase(options).evaluate()["eval_loss"] == doctest::Approx(std::log(3.0)).epsilon(1e-6));
}

TEST_CASE("label_smoothing_factor smooths CrossEntropyLoss, whose other options stay") {
  const auto x = torch::zeros({4, 1});
  auto options = [&](double factor, torch::nn::CrossEntropyLossOptions loss = {}) {
    return etude::TrainerOptions{.model = PlainScores(),
                                 .args = smoothing(factor),
                                 .loss = torch::nn::CrossEntropyLoss(loss),
                                 .eval_dataset = etude::Dataset(x, labels().reshape({4}))};
  };
  CHECK(evaluated(options(0.3)) == doctest::Approx(0.9483079880951044).epsilon(1e-6));
  const auto sum = torch::nn::CrossEntropyLossOptions().reduction(torch::kSum);
  CHECK(evaluated(options(0.3, sum)) == doctest::Approx(3 * 0.9483079880951044).epsilon(1e-6));
}

TEST_CASE("label_smoothing_factor with another loss is refused, and so is one outside its range") {
  const auto fault = [](double factor, etude::Loss loss) {
    return toy::fault_of<etude::ArgumentError>([&] {
      etude::Trainer<>({.model = PlainScores(), .args = smoothing(factor), .loss = std::move(loss)});
    });
  };
  CHECK(fault(0.1, torch::nn::MSELoss()).find("label_smoothing_factor is 0.1: must be 0 unless") !=
        std::string::npos);
  CHECK(fault(1, torch::nn::CrossEntropyLoss())
            .find("label_smoothing_factor is 1: must be at least 0 and below 1") != std::string::npos);
}

}  // namespace model_label_smoothing_test
