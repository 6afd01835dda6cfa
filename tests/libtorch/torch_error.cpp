#include "etude/libtorch/torch_error.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/logged.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/tune/learning_rate_finder.hpp"

namespace libtorch_error_test {

using toy::contains;

/// Sets the environment variable while it lives.
struct Stacktraces {
  explicit Stacktraces(const char* value) { ::setenv("TORCH_SHOW_CPP_STACKTRACES", value, 1); }
  ~Stacktraces() { ::unsetenv("TORCH_SHOW_CPP_STACKTRACES"); }
};

std::string without_trailing_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

template <class Exception, class Run>
std::string text_of(Run run) {
  try {
    run();
  } catch (const Exception& error) {
    return without_trailing_newline(error.what());
  }
  return "nothing was thrown";
}

void fail() {
  etude::with_place([] { TORCH_CHECK_INDEX(false, "no such index"); }, [] { return "here"; });
}

TEST_CASE("a LibTorch exception keeps its type, names its origin and has no stack frames") {
  CHECK(text_of<c10::IndexError>(fail) == "here: no such index");
  CHECK(text_of<c10::IndexError>([] { etude::with_place(fail, [] { return "outside"; }); }) ==
        "outside: here: no such index");
}

TEST_CASE("the stack frames come with TORCH_SHOW_CPP_STACKTRACES") {
  const auto with = [](const char* value) {
    const Stacktraces on(value);
    return text_of<c10::IndexError>(fail);
  };
  CHECK(with("1").starts_with("here: no such index\n"));
  CHECK(with("1").find("frame #0") != std::string::npos);
  CHECK(with("0") == "here: no such index");
}

TEST_CASE("other exceptions are left alone") {
  CHECK_THROWS_WITH_AS(etude::with_place([] { throw std::runtime_error("x"); }, [] { return "here"; }), "x",
                       std::runtime_error);
}

struct ScoresImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return out(x); }
  torch::nn::Linear out{register_module("out", torch::nn::Linear(2, 3))};
};
TORCH_MODULE(Scores);

etude::TrainerOptions classification(const torch::Tensor& inputs, const torch::Tensor& labels) {
  auto options = toy::options(toy::arguments());
  options.args.per_device_train_batch_size = 4;
  options.args.per_device_eval_batch_size = 4;
  options.model = Scores();
  options.loss = torch::nn::CrossEntropyLoss();
  options.train_dataset = {inputs, labels};
  options.eval_dataset = {inputs, labels};
  return options;
}

template <class Exception>
std::string training_error(const etude::TrainerOptions& options) {
  return text_of<Exception>([&] { etude::Trainer<>(options).train(); });
}

TEST_CASE("the error about an unsuitable input is one line, with the model, the step and the batch") {
  const auto x = torch::ones({8, 2});
  const auto y = torch::zeros({8}, torch::kLong);
  const auto shape = training_error<c10::Error>(classification(torch::ones({8, 5}), y));
  CHECK(contains(shape, "ScoresImpl in step 1, inputs float32 [4, 5], labels int64 [4]: in forward: "));
  CHECK(shape.find('\n') == std::string::npos);
  auto labels = y.clone();
  labels[7] = 9;
  auto sequential = classification(x, labels);
  sequential.args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  const auto range = training_error<c10::IndexError>(sequential);
  CHECK(contains(range, "ScoresImpl in step 2, inputs float32 [4, 2], labels int64 [4]: in "));
  CHECK(range.find("CrossEntropyLoss") != std::string::npos);
  CHECK(range.find("Target 9 is out of bounds") != std::string::npos);
  CHECK(range.find('\n') == std::string::npos);
  CHECK(training_error<c10::Error>(classification(x.to(torch::kDouble), y))
            .find("in forward, whose parameters are float32 where an input is float64 (make it float32)") !=
        std::string::npos);
  CHECK(contains(text_of<c10::Error>([&] { etude::Trainer<>(classification(x, y + 3)).evaluate(); }),
                 "ScoresImpl in an evaluation (eval), inputs float32 [4, 2], labels int64 [4]: "));
}

TEST_CASE("the error about integers for a floating-point model says how to convert them") {
  const auto y = torch::zeros({8}, torch::kLong);
  CHECK(contains(training_error<c10::Error>(classification(torch::ones({8, 2}, torch::kByte), y)),
                 "in forward, whose parameters are float32 where an input is uint8 (make it float32): "));
  CHECK(
      contains(training_error<c10::Error>(classification(torch::ones({8, 2}, torch::kLong), y)),
               "in forward, whose parameters are float32 where an input is int64 (make it float32, unless it "
               "is for an embedding): "));
}

TEST_CASE("a prediction, which has no labels, gives the same error") {
  etude::Trainer<> trainer(classification(torch::ones({8, 2}), torch::zeros({8}, torch::kLong)));
  CHECK(contains(text_of<c10::Error>([&] {
                   trainer.predict(torch::ones({4, 2}, torch::kByte));
                 }),
                 "in forward, whose parameters are float32 where an input is uint8 (make it float32): "));
}

struct Named {
  std::size_t size() const { return 4; }
  std::map<std::string, torch::Tensor> get(std::size_t) const {
    return {{"label", torch::tensor(1)}, {"pixels", torch::ones({2})}};
  }
};

TEST_CASE("the error about missing labels suggests one of the existing names") {
  auto options = classification(torch::ones({8, 2}), torch::zeros({8}, torch::kLong));
  options.train_dataset = Named();
  CHECK(
      training_error<etude::DataError>(options) ==
      "the dataset has no labels, and `loss` needs them (it has label, pixels: those that are labels must be "
      "called labels, or named in label_names)");
  options.args.label_names = {"label"};
  options.args.max_steps = 1;
  etude::Trainer<>(options).train();
}

TEST_CASE("an error names a data_collator whose batch can't be measured") {
  auto options = classification(torch::ones({8, 2}), torch::zeros({8}, torch::kLong));
  options.train_dataset = Named();
  options.data_collator = [](std::vector<etude::Example>) { return etude::Batch(); };
  CHECK(training_error<etude::DataError>(options) ==
        "data_collator: a batch must have at least one input tensor that is defined");
}

TEST_CASE("the error about out-of-range token ids doesn't suggest a conversion") {
  auto options = classification(torch::full({8}, 7, torch::kLong), torch::zeros({8}, torch::kLong));
  options.model = torch::nn::Embedding(5, 3);
  const auto text = training_error<c10::Error>(options);
  CHECK(contains(text, "labels int64 [4]: in forward: "));
  CHECK_FALSE(contains(text, "make it"));
}

TEST_CASE("a model that gets the labels because the loss is missing gives an error that says so") {
  auto options = classification(torch::ones({8, 2}), torch::zeros({8}, torch::kLong));
  options.model = torch::nn::Sequential(torch::nn::Linear(2, 3));
  options.loss = {};
  CHECK(contains(training_error<c10::Error>(options),
                 "in forward, which gets the labels too, because `loss` is not set: "));
}

TEST_CASE("errors before the training, while searching a learning rate, are explained too") {
  etude::Trainer<> trainer(classification(torch::ones({8, 5}), torch::zeros({8}, torch::kLong)));
  CHECK(contains(text_of<c10::Error>([&] { etude::find_learning_rate(trainer); }),
                 "ScoresImpl in a dry run, inputs float32 [4, 5], labels int64 [4]: in forward: "));
}

/// Throws LibTorch's error about tensors that don't stack.
torch::Tensor unfit() { return torch::stack({torch::zeros({2}), torch::zeros({3})}); }

struct Unfit {
  std::size_t size() const { return 4; }
  torch::Tensor get(std::size_t) const { return unfit(); }
};

TEST_CASE("errors of a dataset or compute_metrics are explained too") {
  const auto x = torch::ones({8, 2});
  const auto y = torch::zeros({8}, torch::kLong);
  auto options = classification(x, y);
  options.compute_metrics = [](const etude::EvalPrediction&) {
    return etude::Metrics{{"sum", unfit().sum().item<double>()}};
  };
  CHECK(text_of<c10::Error>([&] {
          etude::Trainer<>(options).evaluate();
        }).starts_with("compute_metrics: stack expects"));
  for (const int workers : {0, 2}) {
    options.args.dataloader_num_workers = workers;
    options.train_dataset = Unfit();
    CHECK(training_error<c10::Error>(options).starts_with("train_dataset, for the batch of step 1, in get("));
  }
}

/// A dataset that can't read example 5.
struct Unreadable {
  std::size_t size() const { return 8; }
  std::pair<torch::Tensor, std::int64_t> get(std::int64_t i) const {
    if (i == 5) throw std::runtime_error("no such image");
    return {torch::zeros({2}), 0};
  }
};

TEST_CASE("a dataset's own exception propagates unchanged, and its example is reported") {
  const auto said_with = [](int workers, bool in_training) {
    auto options = classification(torch::ones({8, 2}), torch::zeros({8}, torch::kLong));
    options.args.log_level = etude::LogLevel::error;
    options.args.train_sampling_strategy = etude::SamplingStrategy::sequential;
    options.args.eval_strategy = etude::IntervalStrategy::epoch;
    options.args.dataloader_num_workers = workers;
    if (in_training)
      options.train_dataset = Unreadable();
    else
      options.eval_dataset = Unreadable();
    return toy::printed([&] { CHECK(training_error<std::runtime_error>(options) == "no such image"); },
                        STDERR_FILENO);
  };
  for (const int workers : {0, 2}) {
    CHECK(said_with(workers, true) ==
          "etude: error: train_dataset, for the batch of step 2, in get(5): no such image\n");
    CHECK(said_with(workers, false) ==
          "etude: error: the dataset of an evaluation (eval), in get(5): no such image\n");
  }
}

struct Complains {
  void on(const etude::StepEnd&) { TORCH_CHECK(false, "the callback's own words"); }
};

TEST_CASE("a callback's LibTorch exception propagates with its own text, without the frames") {
  const auto options = classification(torch::ones({8, 2}), torch::zeros({8}, torch::kLong));
  CHECK(text_of<c10::Error>([&] { etude::Trainer<Complains>(options).train(); }) ==
        "the callback's own words");
}

TEST_CASE("a training whose first step fails logs no train_loss") {
  etude::Trainer<> trainer(classification(torch::ones({8, 5}), torch::zeros({8}, torch::kLong)));
  CHECK_THROWS_AS(trainer.train(), c10::Error);
  CHECK(toy::logged_any(trainer.state(), "train_runtime"));
  CHECK_FALSE(toy::logged_any(trainer.state(), "train_loss"));
}

}  // namespace libtorch_error_test
