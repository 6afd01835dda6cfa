#include <doctest/doctest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/logged.hpp"
#include "common/printed.hpp"
#include "common/silence.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/model_ema.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/optim/parameter_groups.hpp"
#include "etude/optim/rules/adagrad.hpp"
#include "etude/trainer.hpp"

namespace loop_pure_bf16_test {

using etude::IntervalStrategy;

std::string type_of(const torch::Tensor& tensor) { return c10::toString(tensor.scalar_type()); }

using Types = std::vector<std::string>;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    torch::manual_seed(1);
    first = register_module("first", torch::nn::Linear(8, 32));
    second = register_module("second", torch::nn::Linear(32, 4));
    counts = register_buffer("counts", torch::zeros({1}, torch::kLong));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    seen = {type_of(x), type_of(first->weight)};
    return second(torch::relu(first(x)));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::Tensor counts;
  Types seen;
};
TORCH_MODULE(Net);

/// 256 examples of a smooth function with noise.
std::pair<torch::Tensor, torch::Tensor> examples() {
  const auto x = torch::arange(256 * 8).mul(0.37).sin().reshape({256, 8});
  return {x, torch::tanh(x.slice(1, 0, 4) * 2 - x.slice(1, 4, 8)) + 0.2 * (x * 9).slice(1, 0, 4).cos()};
}

etude::TrainerOptions problem(const etude::Model& model) {
  etude::TrainerOptions options;
  options.args = toy::arguments();
  options.args.pure_bf16 = true;
  options.args.learning_rate = 1e-3;
  options.args.per_device_train_batch_size = 16;
  options.args.per_device_eval_batch_size = 64;
  options.args.num_train_epochs = 1;
  options.model = model;
  const auto [x, y] = examples();
  options.train_dataset = {x, y};
  options.eval_dataset = {x, y};
  options.loss = torch::nn::MSELoss();
  return options;
}

struct Gradients {
  Types* types;
  void on(const etude::GradientsComplete& e) {
    for (const auto& [name, parameter] : e.model.named_parameters())
      types->push_back(type_of(parameter.grad()));
  }
};

TEST_CASE("weights, inputs and gradients are bfloat16; losses, metrics and predictions float32") {
  Net net;
  auto options = problem(net);
  Types in_loss, in_metrics, gradients;
  options.loss = [&](const torch::Tensor& output, const torch::Tensor& target) {
    in_loss = {type_of(output), type_of(target)};
    return torch::mse_loss(output, target);
  };
  options.compute_metrics = [&](const etude::EvalPrediction& prediction) {
    in_metrics = {type_of(prediction.predictions[0]), type_of(prediction.label_ids[0])};
    return etude::Metrics{};
  };
  etude::Trainer trainer(options, Gradients{&gradients});
  trainer.train();
  CHECK(net->seen == Types({"BFloat16", "BFloat16"}));
  CHECK(in_loss == Types({"Float", "Float"}));
  CHECK(gradients == Types(16 * 4, "BFloat16"));
  trainer.evaluate();
  CHECK(net->seen == Types({"BFloat16", "BFloat16"}));
  CHECK(in_metrics == Types({"Float", "Float"}));
  CHECK(type_of(trainer.predict(options.train_dataset).predictions[0]) == "Float");
  CHECK(type_of(net->counts) == "Long");
  for (const auto& parameter : net->parameters()) CHECK(type_of(parameter) == "BFloat16");
}

TEST_CASE("a compute_loss of the user's own gets inputs of bfloat16 and labels as they are") {
  auto options = problem(Net());
  options.loss = {};
  Types seen, losses;
  options.compute_loss = [&](etude::Model& model, const etude::Batch& batch,
                             std::optional<double>) -> etude::LossOutput {
    seen = {type_of(batch.inputs[0]), type_of(batch.labels[0])};
    return {(model.forward(batch).single() - batch.labels.single().to(torch::kBFloat16)).square().mean(), {}};
  };
  struct Losses {
    Types* types;
    void on(const etude::BackwardBegin& e) { *types = {type_of(e.loss), type_of(e.batch.inputs[0])}; }
  };
  etude::Trainer trainer(options, Losses{&losses});
  trainer.train();
  CHECK(seen == Types({"BFloat16", "Float"}));
  CHECK(losses == Types({"Float", "Float"}));
}

struct OwnLoss final : etude::TrainerBase<OwnLoss> {
  using TrainerBase::TrainerBase;
  etude::LossOutput compute_loss(const etude::Batch& batch, std::optional<double> items = {}) {
    type = type_of(batch.inputs[0]);
    return TrainerBase::compute_loss(batch, items);
  }
  std::string type;
};

TEST_CASE("so does a trainer's own compute_loss") {
  OwnLoss trainer(problem(Net()));
  trainer.train();
  CHECK(trainer.type == "BFloat16");
}

/// The loss over all examples after a thousand steps with a small learning rate.
double final_loss(bool pure_bf16, const std::string& optim_args) {
  auto options = problem(Net());
  options.args.pure_bf16 = pure_bf16;
  options.args.optim_args = optim_args;
  options.args.max_steps = 1500;
  options.args.learning_rate = 2e-4;
  etude::Trainer<etude::NoDefaultCallbacks, etude::DefaultFlowCallback> trainer(options);
  trainer.train();
  return trainer.evaluate().at("eval_loss");
}

TEST_CASE("kahan and stochastic rounding train to float32's loss, and rounding to nearest doesn't") {
  const double in_float32 = final_loss(false, ""), kahan = final_loss(true, ""),
               stochastic = final_loss(true, "rounding=stochastic"),
               nearest = final_loss(true, "rounding=nearest");
  CAPTURE(in_float32);
  CAPTURE(kahan);
  CAPTURE(stochastic);
  CAPTURE(nearest);
  CHECK(kahan == doctest::Approx(in_float32).epsilon(0.01));
  CHECK(stochastic == doctest::Approx(in_float32).epsilon(0.02));
  CHECK(nearest > 5 * in_float32);
}

TEST_CASE("training is resumed to the bit, with each rounding and an average of weights") {
  for (const auto* rounding : {"kahan", "stochastic", "nearest"}) {
    CAPTURE(rounding);
    const toy::Folder folder;
    const toy::Silence silence;
    Net net, other;
    auto options = problem(net);
    options.args.optim_args = std::string("rounding=") + rounding;
    options.args.num_train_epochs = 2;
    options.args.eval_strategy = IntervalStrategy::epoch;
    toy::save_to(folder, options.args, 5);
    etude::Trainer<etude::ModelEmaCallback> whole(options);
    const auto metrics = whole.train();
    options.model = other;
    etude::Trainer<etude::ModelEmaCallback> resumed(options);
    resumed.train({.resume_from_checkpoint = folder / "checkpoint-10"});
    for (std::size_t i = 0; i < net->parameters().size(); ++i)
      CHECK(torch::equal(net->parameters()[i], other->parameters()[i]));
    CHECK(toy::logged(whole.state(), "eval_loss") == toy::logged(resumed.state(), "eval_loss"));
    CHECK(toy::logged(whole.state(), "eval_ema_loss") == toy::logged(resumed.state(), "eval_ema_loss"));
  }
}

TEST_CASE("a checkpoint and a saved model have bfloat16, and the best weights come back") {
  const toy::Folder folder;
  const toy::Silence silence;
  Net net;
  auto options = problem(net);
  options.args.load_best_model_at_end = true;
  options.args.eval_strategy = IntervalStrategy::steps;
  options.args.eval_steps = 5;
  options.args.metric_for_best_model = "loss";
  options.args.greater_is_better = true;  // so that an early evaluation is the best
  toy::save_to(folder, options.args, 5);
  etude::Trainer<> trainer(options);
  trainer.train();
  const auto losses = toy::logged(trainer.state(), "eval_loss");
  const double best = *std::max_element(losses.begin(), losses.end());
  CHECK(best > losses.back());
  CHECK(trainer.evaluate().at("eval_loss") == doctest::Approx(best));
  trainer.save_model(folder / "saved");
  for (const auto* path : {"saved/model.safetensors", "checkpoint-5/model.safetensors"}) {
    const auto file = etude::load_safetensors(folder / path);
    for (const auto& [name, tensor] : file.tensors)
      CHECK(type_of(tensor) == (name == "counts" ? "Long" : "BFloat16"));
  }
}

TEST_CASE("a run that is resumed with or without it says so, and continues") {
  for (const bool first : {true, false}) {
    CAPTURE(first);
    const toy::Folder folder;
    auto options = problem(Net());
    options.args.pure_bf16 = first;
    options.args.num_train_epochs = 2;
    options.args.eval_strategy = IntervalStrategy::epoch;
    toy::save_to(folder, options.args, 16);
    const auto text = toy::printed(
        [&] {
          etude::Trainer<>(options).train();
          options.args.pure_bf16 = !first;
          options.args.log_level = etude::LogLevel::warning;
          Net net;
          options.model = net;
          etude::Trainer<> other(options);
          other.train({.resume_from_checkpoint = folder / "checkpoint-16"});
          const auto losses = toy::logged(other.state(), "eval_loss");
          CHECK(losses.size() == 2);
          CHECK(losses[1] < losses[0]);
          CHECK(type_of(net->parameters()[0]) == (first ? "Float" : "BFloat16"));
        },
        STDERR_FILENO);
    CHECK(text.find(first ? "with another argument: pure_bf16: true -> false"
                          : "with another argument: pure_bf16: false -> true") != text.npos);
  }
}

TEST_CASE("a batch norm stays float32, and its statistics follow small changes, which rounding would lose") {
  for (const bool recomputes : {false, true}) {
    CAPTURE(recomputes);
    torch::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Linear(8, 32),
                              torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(32).momentum(0.001)),
                              torch::nn::ReLU(), torch::nn::Linear(32, 4));
    auto options = problem(net);
    options.args.gradient_checkpointing = recomputes;
    options.args.max_steps = 50;
    etude::Trainer<> trainer(options);
    trainer.train();
    for (const auto& [name, tensor] : trainer.model().state_dict()) {
      const auto parameter = name;  // Clang 15 captures no structured binding
      CAPTURE(parameter);
      CHECK(type_of(tensor) == (name == "1.num_batches_tracked" ? "Long"
                                : name.starts_with("1.")        ? "Float"
                                                                : "BFloat16"));
      // Bfloat16 would stay at 1: its neighbour below is 0.4 % away, four times the largest change of a step.
      if (name == "1.running_var") CHECK((tensor < 0.999).all().item<bool>());
    }
    CHECK(std::isfinite(trainer.evaluate().at("eval_loss")));
  }
}

TEST_CASE("a TorchScript model trains in it too") {
  torch::jit::Module script("script");
  script.register_parameter("w", torch::ones({8, 4}).set_requires_grad(true), false);
  script.define("def forward(self, x):\n    return torch.matmul(x, self.w)\n");
  etude::Trainer<> trainer(problem(script));
  const double before = trainer.evaluate().at("eval_loss");
  trainer.train();
  CHECK(trainer.evaluate().at("eval_loss") < before);
  CHECK(type_of(trainer.model().parameters()[0]) == "BFloat16");
}

std::string rounding_optimizers() { return etude::optimizers_with(&etude::OptimizerTraits::rounds_bfloat16); }

TEST_CASE("arguments that contradict pure_bf16 are refused by name") {
  const auto fault = [](auto set) {
    auto options = problem(Net());
    set(options);
    return toy::fault_of<etude::ArgumentError>([&] { etude::Trainer<> trainer(options); });
  };
  using Options = etude::TrainerOptions;
  const std::string since = ": must be false, since pure_bf16 is true";
  CHECK(fault([](Options&) {}) == "nothing was thrown");
  CHECK(fault([](Options& o) { o.args.bf16 = true; }) == "bf16 is true" + since);
  CHECK(fault([](Options& o) { o.args.fp16 = true; }) == "fp16 is true" + since);
  CHECK(fault([](Options& o) { o.args.bf16_full_eval = true; }) == "bf16_full_eval is true" + since);
  CHECK(fault([](Options& o) { o.args.fp16_full_eval = true; }) == "fp16_full_eval is true" + since);
  for (const auto name : etude::enum_names<etude::OptimizerNames>) {
    CAPTURE(name);
    const auto optim = etude::from_string<etude::OptimizerNames>(name);
    if (!etude::traits_of(optim).rounds_bfloat16)
      CHECK(fault([&](Options& o) { o.args.optim = optim; })
                .starts_with("optim is " + std::string(name) + ": must be one of " + rounding_optimizers() +
                             " with pure_bf16"));
  }
  auto options = problem(Net());
  options.args.optim_args = "rounding=up";
  CHECK(toy::fault_of<etude::ArgumentError>([&] {
          etude::Trainer<>(options).train();
        }).find("must be one of nearest, kahan, stochastic") != std::string::npos);
}

/// Makes an optimizer that doesn't round.
struct WithAdagrad : etude::TrainerBase<WithAdagrad> {
  using TrainerBase::TrainerBase;
  std::unique_ptr<etude::Optimizer> create_optimizer() {
    return std::make_unique<etude::Adagrad>(etude::parameter_groups(model().named_parameters(), 0),
                                            etude::AdagradOptions{});
  }
};

TEST_CASE("an optimizer that doesn't round is refused by name, given or made by create_optimizer") {
  auto options = problem(Net());
  const auto refused = [](const std::string& name) {
    return "pure_bf16 is true: must be false with " + name +
           ", which doesn't round in its updates: " + rounding_optimizers() + " do";
  };
  CHECK(toy::fault_of<etude::ArgumentError>([&] { WithAdagrad(options).train(); }) == refused("Adagrad"));
  const Net net;
  options.model = net;
  options.optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
  CHECK(toy::fault_of<etude::ArgumentError>([&] { etude::Trainer<>(options).train(); }) == refused("SGD"));
}

TEST_CASE("gradients of several micro-batches are clipped by their norm in float32") {
  auto options = problem(Net());
  options.args.gradient_accumulation_steps = 4;
  options.args.max_grad_norm = 0.01;
  options.args.logging_strategy = IntervalStrategy::steps;
  options.args.logging_steps = 1;
  etude::Trainer<> trainer(options);
  {
    const toy::Silence silence;
    trainer.train();
  }
  auto in_float32 = options;
  in_float32.model = Net();
  in_float32.args.pure_bf16 = false;
  etude::Trainer<> other(in_float32);
  {
    const toy::Silence silence;
    other.train();
  }
  const auto norms = toy::logged(trainer.state(), "grad_norm"),
             expected = toy::logged(other.state(), "grad_norm");
  REQUIRE(norms.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(norms[i] == doctest::Approx(expected[i]).epsilon(0.02));
}

}  // namespace loop_pure_bf16_test
