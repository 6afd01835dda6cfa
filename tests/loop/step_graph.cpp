#include "etude/loop/step_graph.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/fault_of.hpp"
#include "common/logged.hpp"
#include "common/toy.hpp"
#include "etude/model/compiled_graph.hpp"
#include "etude/optim/cpu_kernels.hpp"
#include "etude/trainer.hpp"

// The tape needs the dispatcher of newer versions.
#if TORCH_VERSION_MAJOR > 1

#include "common/tape.hpp"

namespace loop_step_graph_test {

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    ++calls;
    return last(torch::dropout(torch::relu(norm(first(x))), 0.25, is_training()));
  }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(6, 16))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(16))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(16, 3))};
  int calls = 0;
};
TORCH_MODULE(Net);

/// 64 steps in 4 epochs, each of which ends with a smaller batch. The learning rates are exact in float.
etude::TrainerOptions problem(bool cuda_graph) {
  torch::manual_seed(5);
  auto args = toy::arguments();
  args.per_device_train_batch_size = 8;
  args.num_train_epochs = 4;
  args.learning_rate = 0.0625;
  args.lr_scheduler_type = etude::SchedulerType::linear;
  args.weight_decay = 0.125;
  args.max_grad_norm = 0.5;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 5;
  args.cuda_graph = cuda_graph;
  const auto x = torch::randn({125, 6});
  return {.model = Net(),
          .args = args,
          .loss = torch::nn::CrossEntropyLoss(),
          .train_dataset = {x, torch::randint(3, {125})},
          .eval_dataset = {x, torch::randint(3, {125})}};
}

/// While it lives, trainings run the code for a GPU.
struct AsOnAGpu {
  AsOnAGpu() {
    tape::register_for_cpu();
    etude::detail::uses_cpu_kernels() = false;
    tape::Tape::captures() = tape::Tape::replays() = 0;
  }
  AsOnAGpu(const AsOnAGpu&) = delete;
  AsOnAGpu& operator=(const AsOnAGpu&) = delete;
  ~AsOnAGpu() { etude::detail::uses_cpu_kernels() = true; }
};

/// Everything that a training leaves behind.
struct Result {
  std::map<std::string, torch::Tensor> tensors;
  std::vector<std::string> logs;
  int forward_calls = 0;
};

/// Trains with or without graphs, with the optimizer that a graph needs.
template <class... Callbacks>
struct Training : etude::TrainerBase<Training<Callbacks...>, Callbacks...> {
  using Base = etude::TrainerBase<Training, Callbacks...>;
  using Base::Base;
  std::unique_ptr<etude::Optimizer> create_optimizer() {
    auto optimizer = Base::create_optimizer();
    CHECK(optimizer->make_capturable());
    return optimizer;
  }
};

template <class... Callbacks>
Result train(etude::TrainerOptions options, Callbacks... callbacks) {
  Training<Callbacks...> trainer(std::move(options), std::move(callbacks)...);
  trainer.train();
  Result result;
  for (const auto& [name, tensor] : trainer.model().named_parameters())
    result.tensors[name] = tensor.detach();
  for (const auto& [name, tensor] : trainer.model().named_buffers()) result.tensors[name] = tensor;
  for (const auto& [name, tensor] : trainer.optimizer()->state()) result.tensors[name] = tensor;
  for (auto logs : trainer.state().log_history) {
    std::erase_if(logs, [](const auto& entry) {
      return entry.first.ends_with("_runtime") || entry.first.ends_with("_per_second");
    });
    result.logs.push_back(nlohmann::json(logs).dump());
  }
  result.forward_calls = dynamic_cast<NetImpl&>(*trainer.model().module()).calls;
  return result;
}

void check_equal(const Result& a, const Result& b) {
  REQUIRE(a.tensors.size() == b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) {
    const auto parameter = name;  // Clang 15 captures no structured binding
    CAPTURE(parameter);
    CHECK(torch::equal(tensor, b.tensors.at(name)));
  }
  CHECK(a.logs == b.logs);
}

TEST_CASE("replayed steps equal those without a graph, to the bit") {
  const AsOnAGpu device;
  for (const auto name : etude::enum_names<etude::OptimizerNames>) {
    const auto optim = etude::from_string<etude::OptimizerNames>(name);
    if (!etude::traits_of(optim).is_elementwise) continue;
    CAPTURE(name);
    const auto options = [&](bool cuda_graph) {
      auto result = problem(cuda_graph);
      result.args.optim = optim;
      if (optim == etude::OptimizerNames::sgd) result.args.optim_args = "momentum=0.875";
      if (optim == etude::OptimizerNames::rprop) result.args.weight_decay = 0;
      return result;
    };
    tape::Tape::captures() = tape::Tape::replays() = 0;
    const auto without = train(options(false));
    CHECK(tape::Tape::replays() == 0);
    const auto with = train(options(true));
    check_equal(with, without);
    // The last of 16 steps in an epoch has a batch of another form; the first three prepare the capture.
    CHECK(tape::Tape::captures() == 1);
    CHECK(tape::Tape::replays() == 4 * 15 - 3);
    CHECK(without.forward_calls == 64);
    CHECK(with.forward_calls == 3 + 1 + 4);
  }
}

/// Freezes the first layer, and evaluates with weights of another type.
struct Change {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 20)
      for (auto& [name, parameter] : e.model.named_parameters())
        if (name.starts_with("first")) torch::Tensor(parameter).requires_grad_(false);
    if (e.state.global_step == 40) e.control.should_evaluate = true;
    if (e.state.global_step == 50) {
      const torch::NoGradGuard no_grad;
      for (auto& [name, parameter] : e.model.named_parameters())
        torch::Tensor(parameter).set_data(parameter * 0.5);
    }
  }
};

TEST_CASE("a graph is captured again when parameters are frozen, and survives evaluations and new weights") {
  const AsOnAGpu device;
  const auto options = [](bool cuda_graph) {
    auto result = problem(cuda_graph);
    result.args.bf16_full_eval = true;
    return result;
  };
  const auto without = train(options(false), Change());
  check_equal(train(options(true), Change()), without);
  CHECK(tape::Tape::captures() == 2);
}

/// Changes a weight decay, and the number of steps in the optimizer's state.
struct ChangesOptimizer {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 20)
      for (auto& group : e.optimizer->param_groups()) group.weight_decay *= 2;
    if (e.state.global_step != 40) return;
    etude::NamedTensors state;
    for (const auto& [name, tensor] : e.optimizer->state())
      state.emplace_back(name, name.ends_with(".step") ? torch::ones_like(tensor) : tensor.clone());
    e.optimizer->load_state(state);
  }
};

TEST_CASE("a graph is captured again when a weight decay changes, and when a state is loaded") {
  const AsOnAGpu device;
  const auto without = train(problem(false), ChangesOptimizer());
  check_equal(train(problem(true), ChangesOptimizer()), without);
  CHECK(tape::Tape::captures() == 3);
}

/// Sets a learning rate of NaN while steps are replayed.
struct SetsNaN {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 10) e.optimizer->param_groups()[0].lr = NAN;
  }
};

TEST_CASE("an invalid learning rate is an error before a step is replayed with it") {
  const AsOnAGpu device;
  etude::Trainer<SetsNaN> trainer(problem(true));
  CHECK(toy::fault_of<etude::ArgumentError>([&] {
          trainer.train();
        }).starts_with("the learning rate of parameter group 0 is nan for step 11"));
  for (const auto& parameter : trainer.model().parameters())
    CHECK(torch::isfinite(parameter).all().item<bool>());
}

struct Looks {
  void on(const etude::GradientsClipped&) {}
};
struct Changes {
  void on(etude::ForwardBegin&) {}
};
struct After {
  void on(const etude::OptimizerStep&) { ++calls; }
  void on(const etude::SchedulerStep&) {}
  void on(const etude::BatchFetched&) {}
  int calls = 0;
};

TEST_CASE("a callback that a replayed step would not call is an error that names it and its event") {
  const AsOnAGpu device;
  const auto fault = [](auto... callbacks) {
    return toy::fault_of<etude::ArgumentError>([&] { etude::Trainer(problem(true), callbacks...).train(); });
  };
  CHECK(fault(Looks()) ==
        "cuda_graph is true: must be false with Looks, which handles GradientsClipped, an event inside the "
        "captured step");
  CHECK(fault(Changes()) ==
        "cuda_graph is true: must be false with Changes, which handles ForwardBegin, an event inside the "
        "captured step");

  etude::Trainer<etude::RuntimeCallbacks> trainer(problem(true));
  trainer.add_callback(Looks());
  CHECK_THROWS_AS(trainer.train(), etude::ArgumentError);

  etude::Trainer<After> others(problem(true));
  others.train();
  CHECK(others.callback<After>().calls == 64);
}

/// Adds a callback while steps are replayed.
struct Adds {
  std::function<void()> add;
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 10) add();
  }
};

TEST_CASE("so is one that is added while steps are replayed") {
  const AsOnAGpu device;
  etude::Trainer<Adds, etude::RuntimeCallbacks>* running = nullptr;
  etude::Trainer<Adds, etude::RuntimeCallbacks> trainer(problem(true),
                                                        Adds{[&] { running->add_callback(Looks()); }});
  running = &trainer;
  CHECK_THROWS_AS(trainer.train(), etude::ArgumentError);
  CHECK(trainer.state().global_step == 10);
}

TEST_CASE("steps that can't be captured are refused by name") {
  const AsOnAGpu device;
  const auto fault = [](etude::TrainerOptions options) {
    return toy::fault_of<etude::ArgumentError>([&] { etude::Trainer(std::move(options)).train(); });
  };
  auto options = problem(true);
  options.args.optim = etude::OptimizerNames::adafactor;
  CHECK(
      fault(options) ==
      "cuda_graph is true: must be false with Adafactor, which gets its learning rates from the host: optim "
      "must be one of " +
          etude::optimizers_with(&etude::OptimizerTraits::is_elementwise) + " for it");

  options = problem(true);
  const Net net;
  options.model = net;
  options.optimizer = std::make_shared<torch::optim::AdamW>(net->parameters());
  CHECK(fault(options).starts_with("cuda_graph is true: must be false with AdamW, "));

  options = problem(true);
  options.loss = [](const torch::Tensor& output, const torch::Tensor& target, double items) {
    return torch::nll_loss(torch::log_softmax(output, 1), target, {}, at::Reduction::Sum) / items;
  };
  CHECK(fault(options) ==
        "cuda_graph is true: must be false with a loss that takes the number of items, which a replayed step "
        "couldn't give it: "
        "take the mean of each batch");

  options = problem(true);
  options.args.lr_scheduler_type = etude::SchedulerType::one_cycle_lr;
  CHECK(fault(options).find("cuda_graph is true: must be false with a schedule that changes the momentum") !=
        std::string::npos);

  options = problem(true);
  options.args.on_non_finite = etude::OnNonFinite::skip;
  CHECK(fault(options).starts_with("on_non_finite is skip: must be ignore with cuda_graph, "));
}

TEST_CASE("a compute_loss of one's own gets no number of items, which a replay couldn't change") {
  const AsOnAGpu device;
  auto options = problem(true);
  options.loss = {};
  std::vector<bool> given;
  options.compute_loss = [&](etude::Model& model, const etude::Batch& batch, std::optional<double> items) {
    given.push_back(items.has_value());
    const auto outputs = model.forward(batch);
    return etude::LossOutput{torch::cross_entropy_loss(outputs.single(), batch.labels.single()), outputs};
  };
  train(options);
  CHECK(given == std::vector<bool>(8, false));
}

TEST_CASE("an error in the captured step is reported with its place, and ends the capture") {
  const AsOnAGpu device;
  auto options = problem(true);
  options.loss = {};
  int calls = 0;
  options.compute_loss = [&](etude::Model& model, const etude::Batch& batch, std::optional<double>) {
    TORCH_CHECK(++calls < 4, "operation not permitted when stream is capturing");
    const auto outputs = model.forward(batch);
    return etude::LossOutput{torch::cross_entropy_loss(outputs.single(), batch.labels.single()), outputs};
  };
  try {
    train(options);
    FAIL("no error");
  } catch (const c10::Error& error) {
    const std::string text = error.what();
    CAPTURE(text);
    CHECK(text.find("a step captured for cuda_graph, in which the model and the loss may neither read values "
                    "on the host nor "
                    "wait for the device: ") == 0);
    CHECK(text.find("operation not permitted") != text.npos);
  }
  CHECK_FALSE(c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::TESTING_ONLY_GenericMode));
}

struct WithGraphImpl : NetImpl, etude::HasCompiledGraph {
  Result forward_compiled(const etude::Tensors&) override { return {{}, "this must not be called"}; }
};
TORCH_MODULE(WithGraph);

TEST_CASE("a required compiled_graph can't be used with cuda_graph, which captures forward") {
  const AsOnAGpu device;
  auto options = problem(true);
  options.model = WithGraph();
  options.args.compiled_graph = etude::CompiledGraphMode::required;
  const auto fault = toy::fault_of<etude::ArgumentError>([&] { train(options); });
  CHECK(toy::contains(fault, "since cuda_graph is true, which captures forward instead"));
}

}  // namespace loop_step_graph_test

#else

namespace loop_step_graph_test {

TEST_CASE("cuda_graph is refused on the CPU") {
  auto args = toy::arguments();
  args.cuda_graph = true;
  const auto x = torch::randn({8, 2});
  const auto fault = toy::fault_of<etude::ArgumentError>([&] {
    etude::Trainer<>({.model = torch::nn::Linear(2, 1),
                      .args = args,
                      .loss = torch::nn::MSELoss(),
                      .train_dataset = {x, x.sum(1, true)}});
  });
  CHECK(toy::contains(fault, "cuda_graph is true: must be false on the CPU"));
}

}  // namespace loop_step_graph_test

#endif
