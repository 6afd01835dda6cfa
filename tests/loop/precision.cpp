#include <doctest/doctest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>
#include <unistd.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/printed.hpp"
#include "common/toy.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/trainer.hpp"

namespace loop_precision_test {

constexpr auto bfloat16 = torch::kBFloat16;

using Types = std::vector<std::string>;
std::string type_of(const torch::Tensor& tensor) { return c10::toString(tensor.scalar_type()); }

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(8, 16))),
        second(register_module("second", torch::nn::Linear(16, 4))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const auto hidden = first(x);
    types.push_back(type_of(hidden));
    return second(torch::relu(hidden));
  }
  torch::nn::Linear first, second;
  Types types;
};
TORCH_MODULE(Net);

torch::Tensor inputs() { return torch::linspace(-1, 2, 48).sin().reshape({6, 8}); }
torch::Tensor targets() { return torch::linspace(0, 3, 24).cos().reshape({6, 4}); }

etude::TrainerOptions problem(const Net& net, bool bf16) {
  etude::TrainerOptions options;
  options.args = toy::arguments();
  options.args.bf16 = bf16;
  options.args.max_grad_norm = 0;
  options.args.learning_rate = 0.1;
  options.args.weight_decay = 0;
  options.args.lr_scheduler_type = etude::SchedulerType::constant;
  options.args.optim = etude::OptimizerNames::sgd;
  options.args.per_device_train_batch_size = 6;
  options.args.per_device_eval_batch_size = 6;
  options.args.num_train_epochs = 3;
  options.model = net;
  options.train_dataset = {inputs(), targets()};
  return options;
}

TEST_CASE("a guard computes products in its type, and what was in force comes back") {
  const auto a = torch::randn({4, 4}), b = torch::randn({4, 4});
  const auto type = [&] { return type_of(torch::mm(a, b)); };
  {
    const etude::AutocastGuard lower(torch::kCPU, bfloat16);
    CHECK(type() == "BFloat16");
    {
      const etude::AutocastGuard as_given(torch::kCPU, std::nullopt);
      CHECK(type() == "Float");
    }
    CHECK(type() == "BFloat16");
    CHECK(torch::equal(torch::mm(a, b), torch::mm(a.to(bfloat16), b.to(bfloat16))));
  }
  CHECK(type() == "Float");
}

TEST_CASE("a weight that was updated between two guards isn't the old one in the second") {
  const auto weight = torch::ones({4, 4}).requires_grad_();
  const auto x = torch::ones({1, 4});
  const auto result = [&] {
    const etude::AutocastGuard lower(torch::kCPU, bfloat16);
    return torch::linear(x, weight)[0][0].item<double>();
  };
  CHECK(result() == 4);
  {
    const torch::NoGradGuard no_grad;
    weight.fill_(2);
  }
  CHECK(result() == 8);
}

// The same network with each cast written out, as torch.autocast makes them: products in bfloat16, the rest
// in the type of its input, the loss in float32.
torch::Tensor loss_by_hand(const std::vector<torch::Tensor>& weights, const torch::Tensor& x,
                           const torch::Tensor& y) {
  const auto linear = [&](const torch::Tensor& input, std::size_t i) {
    return torch::addmm(weights[i + 1].to(bfloat16), input.to(bfloat16), weights[i].t().to(bfloat16));
  };
  return torch::mse_loss(linear(torch::relu(linear(x, 0)), 2).to(torch::kFloat), y);
}

TEST_CASE("training in bf16 equals a loop with each cast written out") {
  Net net;
  std::vector<torch::Tensor> weights;
  for (const auto& each : net->parameters()) weights.push_back(each.detach().clone().requires_grad_());
  auto options = problem(net, true);
  options.loss = torch::nn::MSELoss();
  const auto x = inputs(), y = targets();
  etude::Trainer trainer(options);
  trainer.train();
  for (int step = 0; step < 3; ++step) {
    const auto loss = loss_by_hand(weights, x, y);
    const auto gradients = torch::autograd::grad({loss}, weights);
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i].sub_(gradients[i], 0.1);
  }
  const auto trained = net->parameters();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    CAPTURE(i);
    CHECK(type_of(trained[i]) == "Float");
    // Products of older LibTorch round otherwise for other strides.
    CHECK((trained[i] - weights[i]).abs().max().item<double>() < 1e-4);
  }
}

TEST_CASE("with bf16, the model computes in bfloat16 and all others see float32; without, nothing changes") {
  for (const bool bf16 : {true, false}) {
    CAPTURE(bf16);
    Net net;
    auto options = problem(net, bf16);
    options.eval_dataset = options.train_dataset;
    Types in_loss, in_metrics;
    options.loss = [&](const torch::Tensor& output, const torch::Tensor& target) {
      in_loss.push_back(type_of(output));
      in_loss.push_back(type_of(torch::mm(output, target.t())));
      return torch::mse_loss(output, target);
    };
    options.compute_metrics = [&](const etude::EvalPrediction& prediction) {
      in_metrics.push_back(type_of(prediction.predictions[0]));
      return etude::Metrics{};
    };
    etude::Trainer trainer(options);
    trainer.train();
    trainer.evaluate();
    in_metrics.push_back(type_of(trainer.predict(options.eval_dataset.begin()->second).predictions[0]));
    const std::string inside = bf16 ? "BFloat16" : "Float";
    CHECK(net->types == Types(5, inside));
    CHECK(in_loss == Types(in_loss.size(), "Float"));
    CHECK(in_metrics == Types(in_metrics.size(), "Float"));
    CHECK(type_of(torch::mm(torch::ones({2, 2}), torch::ones({2, 2}))) == "Float");
  }
}

TEST_CASE("a compute_loss of the user's own runs under autocast, and its loss arrives as float32") {
  Net net;
  auto options = problem(net, true);
  Types types;
  options.compute_loss = [&](etude::Model& model, const etude::Batch& batch,
                             std::optional<double>) -> etude::LossOutput {
    const auto output = model.forward(batch).single();
    types.push_back(type_of(output));
    return {(output - batch.labels.single().to(bfloat16)).square().mean(), {}};
  };
  struct Losses {
    Types* seen;
    void on(const etude::BackwardBegin& e) { seen->push_back(type_of(e.loss)); }
  };
  Types losses;
  etude::Trainer trainer(options, Losses{&losses});
  trainer.train();
  CHECK(types == Types(3, "BFloat16"));
  CHECK(losses == Types(3, "Float"));
}

TEST_CASE("bf16 on a processor without instructions for it is a warning") {
  auto options = problem(Net(), true);
  options.loss = torch::nn::MSELoss();
  options.args.log_level = etude::LogLevel::warning;
  const auto text = toy::printed([&] { etude::Trainer(options).train(); }, STDERR_FILENO);
  CHECK((text.find("bf16 is true, but this processor has no instructions") == text.npos) ==
        etude::cpu_multiplies_bfloat16());
}

}  // namespace loop_precision_test
