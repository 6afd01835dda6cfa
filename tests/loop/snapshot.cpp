#include "etude/loop/snapshot.hpp"

#include <doctest/doctest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "etude/loop/event_source.hpp"
#include "etude/optim/create.hpp"
#include "etude/reflect/struct.hpp"

namespace loop_snapshot_test {

namespace part = etude::part;
using etude::EventSource;
using etude::Snapshot;

struct NormImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return norm->forward(x); }
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(2))};
};
TORCH_MODULE(Norm);

/// A loss with a parameter.
struct ScaledImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& y) { return ((x - y) * scale).mean(); }
  torch::Tensor scale = register_parameter("scale", torch::ones({1}));
};
TORCH_MODULE(Scaled);

void fill(const torch::Tensor& tensor, double value) {
  const torch::NoGradGuard no_grad;
  torch::Tensor(tensor).fill_(value);
}

TEST_CASE("a snapshot restores the parts that it names, all or one, as often as it is asked") {
  Norm module;
  EventSource events;
  events.core().model = module;
  const Snapshot<part::Buffers, part::Generators> begin(events);
  const auto random = torch::rand({3});
  const auto forward = [&] { module->forward(torch::ones({4, 2}) + torch::rand({4, 2})); };
  forward();
  CHECK(module->norm->num_batches_tracked.item<int>() == 1);

  begin.restore<part::Generators>();
  CHECK(torch::rand({3}).equal(random));
  CHECK(module->norm->num_batches_tracked.item<int>() == 1);
  for (int i = 0; i < 2; ++i) {
    forward();
    fill(module->norm->weight, 5);
    begin.restore();
    CHECK(module->norm->running_mean.equal(torch::zeros({2})));
    CHECK(module->norm->num_batches_tracked.item<int>() == 0);
    CHECK(torch::rand({3}).equal(random));
  }
  CHECK(module->norm->weight.equal(torch::full({2}, 5.0)));
}

TEST_CASE("weights are those of the model and of the loss, with the buffers") {
  Norm module;
  Scaled loss;
  EventSource events;
  events.core().model = module;
  events.core().options.loss = loss;
  const Snapshot<part::Weights> begin(events);
  for (const auto& tensor : {module->norm->weight, module->norm->running_var, loss->scale}) fill(tensor, 7);
  begin.restore();
  for (const auto& tensor : {module->norm->weight, module->norm->running_var, loss->scale})
    CHECK(tensor.equal(torch::ones_like(tensor)));
}

TEST_CASE("a buffer that a model of TorchScript has replaced comes back, too") {
  torch::jit::Module module("M");
  module.register_parameter("w", torch::ones({1}), false);
  module.register_buffer("n", torch::zeros({}));
  module.define("def forward(self, x): return x * self.w\n");
  EventSource events;
  events.core().model = module;
  const Snapshot<part::Weights> begin(events);
  module.setattr("n", torch::full({}, 3.0));
  begin.restore();
  CHECK(module.attr("n").toTensor().item<double>() == 0);
}

TEST_CASE("the state of a generator of the user's own is none of the default ones") {
  std::mt19937 engine(3);
  EventSource events;
  events.core().options.generators.emplace("own", &engine);
  const Snapshot<part::DefaultGenerators> defaults(events);
  const Snapshot<part::Generators> all(events);
  const auto number = torch::rand({});
  const auto first = engine(), second = engine();
  defaults.restore();
  CHECK(torch::rand({}).equal(number));
  CHECK(engine() != first);
  all.restore();
  CHECK(torch::rand({}).equal(number));
  CHECK(engine() == first);
  CHECK(engine() == second);
}

TEST_CASE("restored optimizers go on as they did, without gradients; a new one starts from scratch") {
  const auto weight = torch::ones({2}).requires_grad_(), other = torch::ones({2}).requires_grad_();
  const auto optimizer_of = [](const torch::Tensor& tensor) {
    return etude::make_optimizer({.learning_rate = 0.1}, {{"weight", tensor}}, {});
  };
  EventSource events;
  auto& optimizers = events.core().optimizers;
  optimizers.add({"first", optimizer_of(weight)});
  const auto step = [&](std::size_t i, const torch::Tensor& of, double gradient) {
    of.mutable_grad() = torch::full({2}, gradient);
    optimizers[i].optimizer->step();
  };
  step(0, weight, 1);
  const auto value = weight.detach().clone();
  const Snapshot<part::Optimizers> begin(events);
  step(0, weight, -3);
  const auto expected = weight.detach().clone();
  optimizers.add({"second", optimizer_of(other)});
  step(1, other, 1);
  optimizers[0].optimizer->set_learning_rates(0, 9, 9);
  weight.mutable_grad() = torch::ones({2});

  begin.restore();
  CHECK(!(weight.grad().defined() && weight.grad().count_nonzero().item<int>() > 0));
  CHECK(optimizers[0].optimizer->param_groups()[0].lr == 0.1);
  for (const auto& [name, tensor] : optimizers[1].optimizer->state())
    CHECK(tensor.count_nonzero().item<int>() == 0);
  {
    const torch::NoGradGuard no_grad;
    torch::Tensor(weight).copy_(value);
  }
  step(0, weight, -3);
  CHECK(weight.equal(expected));
}

TEST_CASE("a learning rate that isn't finite comes back as it was, for the next step to refuse it") {
  const auto weight = torch::ones({2}).requires_grad_();
  EventSource events;
  auto& optimizers = events.core().optimizers;
  optimizers.add({"", etude::make_optimizer({.learning_rate = 0.1}, {{"weight", weight}}, {})});
  optimizers[0].optimizer->set_learning_rates(0, std::numeric_limits<double>::infinity(), 0.1);
  const Snapshot<part::Optimizers> begin(events);
  optimizers[0].optimizer->set_learning_rates(0, 1, 1);
  begin.restore();
  CHECK(std::isinf(optimizers[0].optimizer->param_groups()[0].lr));
}

TEST_CASE("gradients come back with their values, and those that weren't there go") {
  Norm module;
  module->norm->weight.mutable_grad() = torch::full({2}, 3.0);
  EventSource events;
  events.core().model = module;
  const Snapshot<part::Gradients> begin(events);
  fill(module->norm->weight.mutable_grad(), 8);
  module->norm->bias.mutable_grad() = torch::ones({2});
  begin.restore();
  CHECK(module->norm->weight.grad().equal(torch::full({2}, 3.0)));
  CHECK_FALSE(module->norm->bias.grad().defined());
}

struct Counts {
  ETUDE_STRUCT(Counts, (std::int64_t, count, "the steps", 1));
  void on(const etude::StepEnd&) { ++count; }
};

TEST_CASE("requests, logs and the states of callbacks come back") {
  EventSource events;
  auto& core = events.core();
  Counts counts;
  events.list(counts);
  core.pending_logs.add("before", 1.0);
  etude::Metrics line{{"loss", 1.0}};
  core.log_history.add(line);
  const Snapshot<part::Control, part::LogHistoryLines, part::Logs, part::Callbacks> begin(events);
  counts.count = 5;
  core.control.request_stop("because");
  core.pending_logs.add("since", 2.0);
  core.log_history.add(line);
  begin.restore();
  CHECK(counts.count == 1);
  CHECK_FALSE(core.control.should_training_stop);
  CHECK(core.control.stop_reason.empty());
  CHECK(core.state.log_history.size() == 1);
  REQUIRE(core.pending_logs.state().size() == 1);
  CHECK(core.pending_logs.state()[0].name == "before");
}

TEST_CASE("logs that are put aside come before those since, however their scope ends") {
  EventSource events;
  auto& logs = events.core().pending_logs;
  logs.add("x", 1.0);
  try {
    const etude::SnapshotScope<part::LogsAside> aside(events);
    CHECK(logs.state().empty());
    logs.add("y", 5.0);
    logs.add("x", 3.0);
    throw std::runtime_error("the end");
  } catch (const std::runtime_error&) {
  }
  etude::Metrics all;
  logs.take_into(all);
  CHECK(all.at("x") == 2);
  CHECK(all.at("y") == 5);
  CHECK(all.begin()->first == "x");
}

TEST_CASE("a metric's state comes back, also if a call has changed it") {
  EventSource events;
  auto& compute_metrics = events.core().options.compute_metrics;
  compute_metrics = [calls = 0](const etude::EvalPrediction&) mutable {
    return etude::Metrics{{"calls", ++calls}};
  };
  const auto calls = [&] { return compute_metrics(etude::EvalPrediction{}).at("calls"); };
  CHECK(calls() == 1);
  {
    const etude::SnapshotScope<part::MetricState> begin(events);
    CHECK(calls() == 2);
    CHECK(calls() == 3);
  }
  CHECK(calls() == 2);
}

}  // namespace loop_snapshot_test
