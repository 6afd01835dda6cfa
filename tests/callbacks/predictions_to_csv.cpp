#include "etude/callbacks/predictions_to_csv.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace callbacks_predictions_to_csv_test {

using toy::names_in;

etude::TrainingArguments arguments(const toy::Folder& folder) {
  auto args = toy::arguments();
  args.output_dir = folder;
  args.per_device_eval_batch_size = 2;
  return args;
}

/// The line y = 2 x, whose outputs have no rounding errors for toy::points.
toy::Line doubling() {
  toy::Line line;
  const torch::NoGradGuard no_grad;
  line->weight.fill_(2);
  return line;
}

/// Returns three numbers per example; the last is the largest except for the first example.
struct ClassesImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return torch::cat({-x * unused, x - .25, x}, 1); }
  torch::Tensor unused = register_parameter("unused", torch::ones({1}));
};
TORCH_MODULE(Classes);

TEST_CASE("predictions and targets of an evaluation are in the order of the dataset") {
  const toy::Folder folder;
  auto options = toy::options(arguments(folder), 2, 4);
  options.model = doubling();
  etude::Trainer<etude::PredictionsToCSVCallback> trainer(options);
  trainer.evaluate();
  CHECK(toy::read_text(folder / "eval_predictions.csv") == "prediction,target\n0,1\n0.5,1.5\n1,2\n1.5,2.5\n");
  CHECK(names_in(std::string(folder)) == toy::Names{"eval_predictions.csv"});
}

TEST_CASE("a prediction without labels has no targets") {
  const toy::Folder folder;
  auto options = toy::options(arguments(folder));
  options.model = doubling();
  etude::Trainer<etude::PredictionsToCSVCallback> trainer(options);
  trainer.predict(etude::Dataset(etude::Tensors(toy::points(4).first), etude::Tensors()));
  CHECK(toy::read_text(folder / "test_predictions.csv") == "prediction\n0\n0.5\n1\n1.5\n");
}

/// Returns twice the input, and one number for the whole batch.
struct WithMeanImpl : torch::nn::Module {
  etude::Tensors forward(torch::Tensor x) { return {{"y", x * weight}, {"mean", x.mean()}}; }
  torch::Tensor weight = register_parameter("weight", torch::full({1}, 2.));
};
TORCH_MODULE(WithMean);

TEST_CASE(
    "an output without dimensions is the same in all rows of its batch, other rows than examples are "
    "refused") {
  const toy::Folder folder;
  auto options = toy::options(arguments(folder), 2, 4);
  options.args.per_device_eval_batch_size = 3;
  options.model = WithMean();
  const auto x = torch::tensor({{1.f}, {2.f}, {3.f}, {5.f}});
  etude::Trainer<etude::PredictionsToCSVCallback> trainer(options);
  trainer.predict(x);
  CHECK(toy::read_text(folder / "test_predictions.csv") ==
        "prediction_y,prediction_mean\n2,2\n4,2\n6,2\n10,5\n");

  options.loss = {};
  options.compute_loss = [](etude::Model& model, const etude::Batch& batch, std::optional<double>) {
    return etude::LossOutput{model.forward(batch)["y"].mean(), {}};
  };
  options.data_collator = [](const std::vector<etude::Example>& examples) {
    auto batch = etude::default_data_collator(examples);
    batch.labels = batch.labels[0].repeat({2, 1});
    return batch;
  };
  etude::Trainer<etude::PredictionsToCSVCallback> ragged(options);
  CHECK_THROWS_WITH_AS(ragged.evaluate(),
                       doctest::Contains("target 0 is float32 [6, 1] in a batch of 3 examples"),
                       etude::DataError);
}

TEST_CASE("a row has an example's numbers, or the index of the largest, and integers stay integers") {
  const toy::Folder folder;
  auto options = toy::options(arguments(folder));
  options.model = Classes();
  options.eval_dataset = etude::Dataset(torch::tensor({{-.5}, {.125}, {1.}}, torch::kFloat),
                                        torch::tensor({2, 0, 1}, torch::kLong));
  options.loss = [](const torch::Tensor& output, const torch::Tensor&) { return output.sum(); };
  etude::Trainer<etude::PredictionsToCSVCallback> all(options);
  all.evaluate();
  CHECK(toy::read_text(folder / "eval_predictions.csv") ==
        "prediction_0,prediction_1,prediction_2,target\n0.5,-0.75,-0.5,2\n-0.125,-0.125,0.125,0\n-1,0.75,1,"
        "1\n");
  etude::Trainer<etude::PredictionsToCSVCallback> largest(
      options, etude::PredictionsToCSVCallback{.path = "deep/{prefix}-{step}.csv", .predicted_class = true});
  largest.evaluate();
  CHECK(toy::read_text(folder / "deep/eval-0.csv") == "prediction,target\n0,2\n2,0\n2,1\n");
}

TEST_CASE("each dataset and each split has its file, and each evaluation of a training overwrites it") {
  const toy::Folder folder;
  auto args = arguments(folder);
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.num_train_epochs = 2;
  auto options = toy::options(args);
  options.eval_dataset = {{"near", toy::dataset(1)}, {"far", toy::dataset(3)}};
  etude::Trainer<etude::PredictionsToCSVCallback> trainer(options);
  trainer.train();
  const auto lines = [&](const char* name) {
    const auto text = toy::read_text(folder / name);
    return std::count(text.begin(), text.end(), '\n');
  };
  CHECK(lines("eval_near_predictions.csv") == 2);
  CHECK(lines("eval_far_predictions.csv") == 4);
  CHECK(names_in(std::string(folder)).size() == 2);
}

TEST_CASE("an evaluation that fails leaves only the previous file") {
  struct Throws {
    bool now = false;
    void on(const etude::PredictionStep&) const {
      if (now) throw std::runtime_error("no");
    }
  };
  const toy::Folder folder;
  etude::Trainer<etude::PredictionsToCSVCallback, Throws> trainer(toy::options(arguments(folder), 2, 4));
  trainer.evaluate();
  const auto before = toy::read_text(folder / "eval_predictions.csv");
  trainer.callback<Throws>().now = true;
  CHECK_THROWS_AS(trainer.evaluate(), std::runtime_error);
  CHECK(toy::read_text(folder / "eval_predictions.csv") == before);
  CHECK(names_in(std::string(folder)).size() == 1);
}

TEST_CASE("batches with rows of another width are refused") {
  struct WidensImpl : torch::nn::Module {
    torch::Tensor forward(torch::Tensor x) { return (x * weight).repeat({1, ++calls}); }
    torch::Tensor weight = register_parameter("weight", torch::ones({1}));
    int calls = 0;
  };
  const toy::Folder folder;
  auto options = toy::options(arguments(folder), 2, 4);
  options.model = std::make_shared<WidensImpl>();
  options.loss = [](const torch::Tensor& output, const torch::Tensor&) { return output.sum(); };
  etude::Trainer<etude::PredictionsToCSVCallback> trainer(options);
  CHECK_THROWS_AS(trainer.evaluate(), etude::DataError);
  CHECK(names_in(std::string(folder)).empty());
}

}  // namespace callbacks_predictions_to_csv_test
