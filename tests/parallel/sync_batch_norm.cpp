#include "etude/parallel/sync_batch_norm.hpp"

#include <doctest/doctest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/functional/instancenorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/ranks.hpp"
#include "etude/base/error.hpp"

namespace parallel_sync_batch_norm_test {

using toy::checks;
using toy::Faults;

// A whole batch [n, 3, ...] in which each channel and each example has a different mean and variance.
torch::Tensor whole_batch(std::int64_t n, std::int64_t dims, torch::ScalarType type) {
  std::vector<std::int64_t> shape{n, 3, 4, 2, 3};
  shape.resize(static_cast<std::size_t>(dims));
  const auto size = c10::multiply_integers(shape);
  const auto x = torch::arange(size, torch::kDouble).mul(0.7).sin().reshape(shape);
  std::vector<std::int64_t> of_example(static_cast<std::size_t>(dims), 1), of_channel = of_example;
  of_example[0] = n;
  of_channel[1] = 3;
  return (x * torch::arange(1, 4, torch::kDouble).view(of_channel) +
          torch::arange(n, torch::kDouble).view(of_example) * 0.3 + 2)
      .to(type);
}

// The factors by which the loss multiplies the outputs.
torch::Tensor factors(const torch::Tensor& batch) {
  return torch::arange(batch.numel(), torch::kDouble).mul(1.3).cos().reshape(batch.sizes()).to(batch.dtype());
}

// This rank's part; rank 0 has one example more than its share.
torch::Tensor part(const torch::Tensor& whole, const etude::Communicator& ranks) {
  const auto share = whole.size(0) / ranks.world_size();
  const auto start = ranks.rank() == 0 ? 0 : ranks.rank() * share + 1;
  const auto end = ranks.rank() + 1 == ranks.world_size() ? whole.size(0) : (ranks.rank() + 1) * share + 1;
  return whole.slice(0, start, end);
}

// The batch norm of a whole batch, written out.
struct Reference {
  torch::Tensor output, input_gradient, weight_gradient, bias_gradient, mean, unbiased_var;
};

Reference reference(const torch::Tensor& batch, const torch::Tensor& weight, const torch::Tensor& bias,
                    double eps = 1e-5) {
  const auto x = batch.to(torch::kDouble).detach().requires_grad_();
  const auto w = weight.to(torch::kDouble).detach().requires_grad_();
  const auto b = bias.to(torch::kDouble).detach().requires_grad_();
  const auto values = x.transpose(0, 1).reshape({3, -1});
  const auto n = static_cast<double>(values.size(1));
  const auto mean = values.sum(1) / n;
  const auto var = (values - mean.unsqueeze(1)).square().sum(1) / n;
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = 3;
  const auto y = (x - mean.view(shape)) / (var + eps).sqrt().view(shape) * w.view(shape) + b.view(shape);
  (y * factors(y.detach())).sum().backward();
  return {y.detach(), x.grad(), w.grad(), b.grad(), mean.detach(), (var * (n / (n - 1))).detach()};
}

bool is_near(const torch::Tensor& actual, const torch::Tensor& expected, double tolerance) {
  return actual.sizes() == expected.sizes() &&
         (actual.to(torch::kDouble) - expected).abs().max().item<double>() < tolerance;
}

template <class Norm>
struct NetImpl : torch::nn::Module {
  explicit NetImpl(const torch::nn::BatchNormOptions& options)
      : norm(this->register_module("norm", Norm(options))) {
    torch::NoGradGuard no_grad;
    if (norm->weight.defined()) norm->weight.copy_(torch::tensor({1.5, -0.5, 2.0}));
    if (norm->bias.defined()) norm->bias.copy_(torch::tensor({0.5, 1.0, -2.0}));
  }
  torch::Tensor forward(torch::Tensor x) { return norm->forward(x); }
  Norm norm;
};

// Compares each rank's part with the whole batch's.
template <class Norm>
void compare(std::int64_t dims, const torch::nn::BatchNormOptions& options, std::int64_t world,
             torch::ScalarType type, double tolerance) {
  CAPTURE(dims);
  CAPTURE(world);
  CAPTURE(options.affine());
  CAPTURE(options.track_running_stats());
  const auto whole = whole_batch(3 * world + 2, dims, type);
  const auto weight = options.affine() ? torch::tensor({1.5, -0.5, 2.0}) : torch::ones({3});
  const auto bias = options.affine() ? torch::tensor({0.5, 1.0, -2.0}) : torch::zeros({3});
  const auto expected = reference(whole, weight, bias);
  const auto faults = toy::as_ranks(world, [&](etude::Communicator& ranks) {
    const auto net = std::make_shared<NetImpl<Norm>>(options);
    net->to(type);
    const etude::SyncBatchNorms synced(ranks, net);
    const auto x = part(whole, ranks).clone().requires_grad_();
    const auto y = net->forward(x);
    (y * part(factors(whole), ranks)).sum().backward();
    auto weight_gradient = torch::zeros({3}, type), bias_gradient = torch::zeros({3}, type);
    if (options.affine()) {
      weight_gradient = net->norm->weight.grad().clone();
      bias_gradient = net->norm->bias.grad().clone();
    }
    ranks.sum(weight_gradient);
    ranks.sum(bias_gradient);
    const std::lock_guard lock(checks);
    CHECK(synced.calls() == 1);
    CHECK((y.scalar_type() == type));
    CHECK(is_near(y, part(expected.output, ranks), tolerance));
    CHECK(is_near(x.grad(), part(expected.input_gradient, ranks), tolerance));
    if (options.affine()) {
      CHECK(is_near(weight_gradient, expected.weight_gradient, 10 * tolerance));
      CHECK(is_near(bias_gradient, expected.bias_gradient, 10 * tolerance));
    }
    if (options.track_running_stats()) {
      CHECK(is_near(net->norm->running_mean, 0.1 * expected.mean, tolerance));
      CHECK(is_near(net->norm->running_var, 0.9 + 0.1 * expected.unbiased_var, tolerance));
      CHECK(net->norm->num_batches_tracked.template item<std::int64_t>() == 1);
    }
  });
  CHECK(faults == Faults(static_cast<std::size_t>(world)));
}

TEST_CASE("batch norms of unequal batches give the outputs, gradients and statistics of the whole batch") {
  const torch::nn::BatchNormOptions plain(3);
  for (const std::int64_t world : {2, 3}) {
    compare<torch::nn::BatchNorm1d>(2, plain, world, torch::kDouble, 1e-10);
    compare<torch::nn::BatchNorm1d>(3, plain, world, torch::kFloat, 1e-5);
    compare<torch::nn::BatchNorm2d>(4, plain, world, torch::kDouble, 1e-10);
    compare<torch::nn::BatchNorm2d>(4, plain, world, torch::kFloat, 1e-5);
    compare<torch::nn::BatchNorm3d>(5, plain, world, torch::kDouble, 1e-10);
  }
}

TEST_CASE("batch norms without weights, running statistics or both are synchronized too") {
  for (const bool affine : {false, true})
    for (const bool tracked : {false, true}) {
      const auto options = torch::nn::BatchNormOptions(3).affine(affine).track_running_stats(tracked);
      compare<torch::nn::BatchNorm1d>(2, options, 2, torch::kDouble, 1e-10);
      compare<torch::nn::BatchNorm2d>(4, options, 2, torch::kDouble, 1e-10);
      compare<torch::nn::BatchNorm3d>(5, options, 2, torch::kDouble, 1e-10);
    }
}

TEST_CASE(
    "several steps equal LibTorch's batch norm of the whole batch, with any momentum, and so does "
    "evaluation") {
  for (const torch::optional<double> momentum : {torch::optional<double>(0.3), torch::optional<double>()}) {
    const auto options = torch::nn::BatchNormOptions(3).momentum(momentum);
    const auto whole = whole_batch(8, 4, torch::kDouble);
    NetImpl<torch::nn::BatchNorm2d> alone(options);
    alone.to(torch::kDouble);
    for (int step = 1; step <= 3; ++step) alone.forward(whole * step);
    alone.eval();
    const auto evaluated = alone.forward(whole);
    const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
      const auto net = std::make_shared<NetImpl<torch::nn::BatchNorm2d>>(options);
      net->to(torch::kDouble);
      const etude::SyncBatchNorms synced(ranks, net);
      for (int step = 1; step <= 3; ++step) net->forward(part(whole, ranks) * step);
      net->eval();
      // Evaluation sends nothing: the ranks evaluate different numbers of batches.
      for (std::int64_t i = 0; i < ranks.rank(); ++i) net->forward(whole);
      const std::lock_guard lock(checks);
      CHECK(is_near(net->forward(whole), evaluated, 1e-10));
      CHECK(is_near(net->norm->running_mean, alone.norm->running_mean, 1e-10));
      CHECK(is_near(net->norm->running_var, alone.norm->running_var, 1e-10));
      CHECK(net->norm->num_batches_tracked.item<std::int64_t>() == 3);
      CHECK(synced.calls() == 3);
    });
    CHECK(faults == Faults(2));
  }
}

TEST_CASE("without running statistics, evaluation normalizes by the batch of its own process") {
  for (const bool affine : {false, true}) {
    const auto options = torch::nn::BatchNormOptions(3).affine(affine).track_running_stats(false);
    const auto whole = whole_batch(8, 2, torch::kDouble);
    const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
      const auto net = std::make_shared<NetImpl<torch::nn::BatchNorm1d>>(options);
      net->to(torch::kDouble);
      const auto expected = net->forward(part(whole, ranks));
      const etude::SyncBatchNorms synced(ranks, net);
      net->eval();
      const auto actual = net->forward(part(whole, ranks));
      const std::lock_guard lock(checks);
      CHECK(actual.equal(expected));
      CHECK(synced.calls() == 0);
    });
    CHECK(faults == Faults(2));
  }
}

TEST_CASE("the end of the synchronization gives the batch norms back to LibTorch") {
  for (const bool with_tensors : {false, true}) {
    const auto options =
        torch::nn::BatchNormOptions(3).affine(with_tensors).track_running_stats(with_tensors);
    const auto whole = whole_batch(8, 2, torch::kDouble);
    const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
      const auto net = std::make_shared<NetImpl<torch::nn::BatchNorm1d>>(options);
      net->to(torch::kDouble);
      const auto x = part(whole, ranks);
      const auto alone = net->forward(x);
      torch::Tensor together, late;
      {
        const etude::SyncBatchNorms synced(ranks, net);
        together = net->forward(x);
        late = net->forward(x.clone().requires_grad_()).sum();
      }
      const std::lock_guard lock(checks);
      CHECK_FALSE(is_near(together, alone, 1e-3));
      CHECK(net->forward(x).equal(alone));
      CHECK(net->norm->weight.defined() == with_tensors);
      CHECK_THROWS_WITH_AS(late.backward(),
                           "a synchronized batch norm is no longer synchronized when its backward pass runs",
                           etude::Error);
    });
    CHECK(faults == Faults(2));
  }
}

TEST_CASE("other models, and instance norms of the same one, aren't synchronized") {
  struct BothImpl : torch::nn::Module {
    torch::nn::InstanceNorm1d instances{register_module(
        "instances", torch::nn::InstanceNorm1d(
                         torch::nn::InstanceNorm1dOptions(3).affine(true).track_running_stats(true)))};
    torch::Tensor forward(torch::Tensor x) { return instances->forward(x); }
  };
  const auto whole = whole_batch(4, 3, torch::kFloat);
  const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
    const auto both = std::make_shared<BothImpl>();
    const etude::SyncBatchNorms synced(ranks, both);
    torch::nn::BatchNorm1d other(3);
    // Rank 1 calls them more often, and no rank waits for the other.
    for (std::int64_t i = 0; i <= ranks.rank(); ++i) {
      both->forward(whole);
      other->forward(whole);
    }
    const std::lock_guard lock(checks);
    CHECK(synced.calls() == 0);
  });
  CHECK(faults == Faults(2));
}

TEST_CASE("a process with an empty batch takes part") {
  const auto whole = whole_batch(4, 2, torch::kDouble);
  const auto expected = reference(whole, torch::tensor({1.5, -0.5, 2.0}), torch::tensor({0.5, 1.0, -2.0}));
  const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
    const auto net = std::make_shared<NetImpl<torch::nn::BatchNorm1d>>(torch::nn::BatchNormOptions(3));
    net->to(torch::kDouble);
    const etude::SyncBatchNorms synced(ranks, net);
    const auto own = whole.slice(0, 0, ranks.rank() == 0 ? 4 : 0);
    const auto x = own.clone().requires_grad_();
    const auto y = net->forward(x);
    (y * factors(whole).slice(0, 0, own.size(0))).sum().backward();
    const std::lock_guard lock(checks);
    CHECK(y.sizes() == own.sizes());
    CHECK(is_near(net->norm->running_var, 0.9 + 0.1 * expected.unbiased_var, 1e-10));
    CHECK(x.grad().sizes() == own.sizes());
    if (ranks.rank() == 0) {
      CHECK(is_near(y, expected.output, 1e-10));
      CHECK(is_near(x.grad(), expected.input_gradient, 1e-10));
    } else {
      CHECK(net->norm->weight.grad().equal(torch::zeros({3}, torch::kDouble)));
    }
  });
  CHECK(faults == Faults(2));
}

TEST_CASE("one value a channel in all processes together is an error, and two are not") {
  struct OperatorImpl : torch::nn::Module {
    torch::Tensor weight = register_parameter("weight", torch::ones({3}));
    torch::Tensor forward(torch::Tensor x) {
      return torch::batch_norm(x, weight, {}, {}, {}, true, 0.1, 1e-5, false);
    }
  };
  const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
    const auto net = std::make_shared<OperatorImpl>();
    const etude::SyncBatchNorms synced(ranks, net);
    const auto y = net->forward(torch::full({1, 3}, static_cast<double>(ranks.rank()), torch::kFloat));
    std::string fault;
    try {
      net->forward(torch::ones({ranks.rank() == 0 ? 1 : 0, 3}));
    } catch (const c10::Error& error) {
      fault = error.what_without_backtrace();
    }
    const std::lock_guard lock(checks);
    CHECK(is_near(y, torch::full({1, 3}, ranks.rank() == 0 ? -1.0 : 1.0), 1e-4));
    CHECK(fault.starts_with(
        "Expected more than 1 value per channel when training, got 1 in the 2 processes together"));
  });
  CHECK(faults == Faults(2));
}

TEST_CASE("bfloat16 inputs have statistics in float32") {
  const auto whole = whole_batch(8, 4, torch::kBFloat16);
  const auto expected = reference(whole, torch::tensor({1.5, -0.5, 2.0}), torch::tensor({0.5, 1.0, -2.0}));
  const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
    const auto net = std::make_shared<NetImpl<torch::nn::BatchNorm2d>>(torch::nn::BatchNormOptions(3));
    const etude::SyncBatchNorms synced(ranks, net);
    const auto x = part(whole, ranks).clone().requires_grad_();
    const auto y = net->forward(x);
    (y * part(factors(whole), ranks)).sum().backward();
    const std::lock_guard lock(checks);
    CHECK((y.scalar_type() == torch::kBFloat16));
    CHECK((x.grad().scalar_type() == torch::kBFloat16));
    CHECK(is_near(y, part(expected.output, ranks), 0.02));
    CHECK(is_near(x.grad(), part(expected.input_gradient, ranks), 0.02));
    CHECK(is_near(net->norm->running_mean, 0.1 * expected.mean, 1e-5));
    CHECK(is_near(net->norm->running_var, 0.9 + 0.1 * expected.unbiased_var, 1e-5));
  });
  CHECK(faults == Faults(2));
}

TEST_CASE("gradients of gradients are refused") {
  const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
    const auto net = std::make_shared<NetImpl<torch::nn::BatchNorm1d>>(torch::nn::BatchNormOptions(3));
    const etude::SyncBatchNorms synced(ranks, net);
    const auto loss = net->forward(whole_batch(4, 2, torch::kFloat).requires_grad_()).square().sum();
    const std::lock_guard lock(checks);
    CHECK_THROWS_WITH_AS(loss.backward({}, true, true),
                         "a synchronized batch norm has no gradients of gradients (create_graph)",
                         etude::Error);
  });
  CHECK(faults == Faults(2));
}

torch::jit::Module script(const char* name, bool with_tensors) {
  torch::jit::Module module(name);
  module.register_attribute("training", c10::BoolType::get(), true);
  if (!with_tensors) {
    module.define("def forward(self, x):\n  return x\n");
    return module;
  }
  module.register_parameter("weight", torch::tensor({1.5, -0.5, 2.0}, torch::kDouble), false);
  module.register_parameter("bias", torch::tensor({0.5, 1.0, -2.0}, torch::kDouble), false);
  module.register_buffer("mean", torch::zeros({3}, torch::kDouble));
  module.register_buffer("var", torch::ones({3}, torch::kDouble));
  module.define(
      "def forward(self, x):\n"
      "  y = torch.batch_norm(x * 1.0, self.weight, self.bias, self.mean, self.var, self.training, 0.1, "
      "1e-5, False)\n"
      "  return torch.tanh(y * 0.0) + y\n");
  return module;
}

TEST_CASE("TorchScript's batch norms are synchronized, also when it differentiates them itself") {
  const auto whole = whole_batch(8, 4, torch::kDouble);
  const auto expected = reference(whole, torch::tensor({1.5, -0.5, 2.0}), torch::tensor({0.5, 1.0, -2.0}));
  const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
    const etude::Model model = script("Script", true);
    const etude::SyncBatchNorms synced(ranks, model);
    const auto parameters = model.named_parameters();
    for (const auto& [name, parameter] : parameters) torch::Tensor(parameter).set_requires_grad(true);
    for (int step = 1; step <= 4; ++step) {  // TorchScript compiles in the second or third step
      const auto x = part(whole, ranks).clone().requires_grad_();
      const auto y = model.forward(x)[0];
      (y * part(factors(whole), ranks)).sum().backward();
      std::vector<torch::Tensor> sums;
      for (const auto& [name, parameter] : parameters) {
        sums.push_back(parameter.grad().clone());
        torch::Tensor(parameter).mutable_grad() = torch::Tensor();
        ranks.sum(sums.back());
      }
      const std::lock_guard lock(checks);
      CAPTURE(step);
      CHECK(synced.calls() == step);
      CHECK(is_near(y, part(expected.output, ranks), 1e-10));
      CHECK(is_near(x.grad(), part(expected.input_gradient, ranks), 1e-10));
      CHECK(is_near(sums[0], expected.weight_gradient, 1e-9));
      CHECK(is_near(sums[1], expected.bias_gradient, 1e-9));
    }
    model.eval();
    model.forward(part(whole, ranks));
    const std::lock_guard lock(checks);
    CHECK(synced.calls() == 4);
    const double kept = 0.9 * 0.9 * 0.9 * 0.9;
    CHECK(is_near(model.named_buffers()[0].second, (1 - kept) * expected.mean, 1e-10));
    CHECK(is_near(model.named_buffers()[1].second, kept + (1 - kept) * expected.unbiased_var, 1e-10));
  });
  CHECK(faults == Faults(2));
}

TEST_CASE("a TorchScript batch norm without tensors is refused by name") {
  const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
    torch::jit::Module module("Net");
    module.register_module("norm", script("__torch__.torch.nn.modules.batchnorm.BatchNorm2d", false));
    module.define("def forward(self, x):\n  return self.norm.forward(x)\n");
    const std::lock_guard lock(checks);
    CHECK_THROWS_WITH_AS(etude::SyncBatchNorms(ranks, module),
                         "the batch norm norm of the TorchScript model can't be synchronized: export it with "
                         "affine=True or track_running_stats=True",
                         etude::ArgumentError);
  });
  CHECK(faults == Faults(2));
}

TEST_CASE("one process alone has nothing to synchronize") {
  etude::Communicator alone;
  const auto net = std::make_shared<NetImpl<torch::nn::BatchNorm1d>>(torch::nn::BatchNormOptions(3));
  const etude::SyncBatchNorms synced(alone, net);
  net->forward(whole_batch(4, 2, torch::kFloat));
  CHECK(synced.calls() == 0);
}

}  // namespace parallel_sync_batch_norm_test
