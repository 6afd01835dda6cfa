#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/optim/create.hpp"

namespace optim_create_test {

etude::TrainingArguments arguments(etude::OptimizerNames optim, std::string optim_args = "") {
  etude::TrainingArguments args;
  args.optim = optim;
  args.optim_args = std::move(optim_args);
  args.learning_rate = 0.1;
  return args;
}

TEST_CASE("every optimizer can be created by its name, and lowers a loss") {
  for (std::string_view name : etude::enum_names<etude::OptimizerNames>) {
    CAPTURE(name);
    if (name == "sparse_adam") continue;  // takes no dense gradients
    torch::manual_seed(0);
    torch::nn::Linear module(3, 2);
    const auto optimizer =
        etude::make_optimizer(arguments(etude::from_string<etude::OptimizerNames>(name)), *module);
    const torch::Tensor x = torch::randn({16, 3}), y = torch::randn({16, 2});
    const auto loss = [&] {
      optimizer->zero_grad();
      const torch::Tensor value = torch::mse_loss(module->forward(x), y);
      value.backward();
      return value;
    };
    const double before = loss().item<double>();
    for (int step = 0; step < 5; ++step) optimizer->step(loss);
    CHECK(loss().item<double>() < before);
  }
}

TEST_CASE("every optimizer can do what the table says") {
  for (const std::string_view name : etude::enum_names<etude::OptimizerNames>) {
    CAPTURE(name);
    const auto optim = etude::from_string<etude::OptimizerNames>(name);
    torch::nn::Linear module(3, 2);
    CHECK((etude::make_optimizer(arguments(optim), *module)->traits() == etude::traits_of(optim)));
  }
}

TEST_CASE("every optimizer takes a sparse gradient, or refuses it with its name and the parameter's") {
  for (std::string_view name : etude::enum_names<etude::OptimizerNames>) {
    CAPTURE(name);
    torch::manual_seed(0);
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(8, 2).sparse(true));
    const auto optimizer =
        etude::make_optimizer(arguments(etude::from_string<etude::OptimizerNames>(name)), *table);
    const auto before = table->weight.detach().clone();
    const auto loss = [&] {
      optimizer->zero_grad();
      const auto value = (table->forward(torch::tensor({1, 5, 5})) - 1).square().sum();
      value.backward();
      return value;
    };
    const double first = loss().item<double>();
    if (!optimizer->traits().takes_sparse_gradients && name != "lbfgs") {
      CHECK_THROWS_WITH_AS(
          optimizer->step(loss),
          fmt::format("parameter 'weight' has a sparse gradient, which {} can't use: optim must "
                      "be one of {} for it, or the option sparse of its layer false",
                      optimizer->type(),
                      etude::optimizers_with(&etude::OptimizerTraits::takes_sparse_gradients))
              .c_str(),
          etude::ArgumentError);
      continue;
    }
    for (int step = 0; step < 3; ++step) optimizer->step(loss);
    CHECK(loss().item<double>() < first);
    CHECK(table->weight.grad().is_sparse());
    for (const auto row : {0, 2, 3, 4, 6, 7}) CHECK(torch::equal(table->weight[row], before[row]));
  }
}

TEST_CASE("the arguments reach the groups, and optim_args come last") {
  torch::nn::Linear module(3, 2);
  auto args = arguments(etude::OptimizerNames::sgd, "momentum=0.9, nesterov=True");
  args.weight_decay = 0.3;
  auto optimizer = etude::make_optimizer(args, *module);
  REQUIRE(optimizer->param_groups().size() == 2);
  CHECK(optimizer->param_groups()[0].weight_decay == 0.3);
  CHECK(optimizer->param_groups()[1].weight_decay == 0);
  CHECK(optimizer->param_groups()[1].lr == 0.1);
  optimizer = etude::make_optimizer(arguments(etude::OptimizerNames::lion, "weight_decay=0.5"),
                                    etude::named_parameters(*module));
  CHECK(optimizer->param_groups()[0].weight_decay == 0.5);
  args = arguments(etude::OptimizerNames::adamw_8bit, "min_8bit_size=100");
  args.adam_beta1 = 0.7;
  args.adam_beta2 = 0.8;
  args.adam_epsilon = 1e-4;
  const auto options = etude::make_optimizer(args, *module)->options_state()["given"][0];
  CHECK(options["beta1"] == 0.7);
  CHECK(options["beta2"] == 0.8);
  CHECK(options["eps"] == 1e-4);
  CHECK(options["min_8bit_size"] == 100);
}

TEST_CASE("errors name optim_args that are unknown or invalid, and what is allowed") {
  torch::nn::Linear module(3, 2);
  const auto fails = [&](etude::OptimizerNames optim, const char* text, const char* message) {
    CHECK_THROWS_WITH_AS(etude::make_optimizer(arguments(optim, text), *module), doctest::Contains(message),
                         etude::ArgumentError);
  };
  fails(etude::OptimizerNames::sgd, "momentun=0.9",
        "optim_args of sgd: 'momentun' is unknown: must be one of lr, momentum, dampening, weight_decay, "
        "nesterov, fused");
  fails(etude::OptimizerNames::sgd, "momentum=high",
        "optim_args of sgd: momentum is \"high\": must be a number");
  fails(etude::OptimizerNames::sgd, "nesterov=2", "nesterov is 2: must be true or false");
  fails(etude::OptimizerNames::sgd, "momentum", "optim_args of sgd: 'momentum' is not name=value");
  fails(etude::OptimizerNames::lbfgs, "line_search_fn=weak", "must be one of none, strong_wolfe");
  fails(etude::OptimizerNames::adafactor, "eps1=-1", "eps1 is -1: must be at least 0");
}

TEST_CASE("schedulers scale each group's initial learning rate, and resume exactly") {
  torch::nn::Linear module(3, 2);
  const auto options_of_torch = nlohmann::json::parse(R"({
    "step_lr": {"step_size": 2}, "multi_step_lr": {"milestones": [3]}, "exponential_lr": {"gamma": 0.9},
    "cosine_annealing_lr": {"T_max": 10}, "cosine_annealing_warm_restarts": {"T_0": 3},
    "polynomial_lr": {"total_iters": 20}, "cyclic_lr": {"base_lr": 0, "step_size_up": 4},
    "sequential_lr": {"schedulers": [{"type": "linear_lr"}, {"type": "one_cycle_lr"}], "milestones": [5]},
    "chained_scheduler": {"schedulers": [{"type": "cosine"}, {"type": "cyclic_lr", "base_lr": 0}]}
  })");
  for (std::string_view name : etude::enum_names<etude::SchedulerType>) {
    CAPTURE(name);
    auto args = arguments(etude::OptimizerNames::sgd, "momentum=0.9");
    args.lr_scheduler_type = etude::from_string<etude::SchedulerType>(name);
    args.warmup_steps = 2;
    if (name.find("min_lr") != name.npos) args.lr_scheduler_kwargs = {{"min_lr", 0.01}};
    if (name == "warmup_stable_decay") args.lr_scheduler_kwargs = {{"num_decay_steps", 3}};
    if (name == "greedy" || name == "reduce_lr_on_plateau")
      args.lr_scheduler_kwargs = {{"patience", 0}, {"factor", 0.5}};
    const auto own = options_of_torch.find(std::string(name));
    if (own != options_of_torch.end()) args.lr_scheduler_kwargs = *own;
    auto groups = etude::parameter_groups(*module, 0);
    groups[1].lr = 0.2;
    const auto optimizer = etude::make_optimizer(args, groups), second = etude::make_optimizer(args, groups);
    const auto scheduler = etude::make_scheduler(args, *optimizer, 10);
    const auto step = [](etude::LRScheduler& one) {
      one.step();
      one.step(1.0);
    };
    std::vector<double> rates{scheduler->get_last_lr()};
    for (int i = 0; i < 4; ++i) step(*scheduler);
    const auto resumed = etude::make_scheduler(args, *second, 10);
    resumed->load_state(scheduler->state());
    CHECK(resumed->step_count() == 4);
    for (int i = 0; i < 5; ++i) {
      CHECK(resumed->get_last_lr() == scheduler->get_last_lr());
      CHECK(optimizer->param_groups()[1].lr == doctest::Approx(2 * optimizer->param_groups()[0].lr));
      CHECK(second->param_groups()[1].momentum == optimizer->param_groups()[1].momentum);
      rates.push_back(scheduler->get_last_lr());
      step(*scheduler);
      step(*resumed);
    }
    CHECK((rates.front() != rates.back()) == (name != "constant"));
  }
}

TEST_CASE("a schedule that follows a metric knows from the arguments whether greater is better") {
  using enum etude::SchedulerType;
  torch::nn::Linear module(3, 2);
  // The learning rate after the metrics 1, 2 and 3, starting from 0.1. Each reduction halves it. With greedy,
  // each improvement doubles it, including the first.
  const auto rate = [&](etude::SchedulerType type, std::optional<std::string> metric,
                        std::optional<bool> greater, nlohmann::json kwargs = {}) {
    auto args = arguments(etude::OptimizerNames::sgd);
    args.lr_scheduler_type = type;
    args.metric_for_best_model = std::move(metric);
    args.greater_is_better = greater;
    args.lr_scheduler_kwargs = std::move(kwargs);
    args.lr_scheduler_kwargs["patience"] = 0;
    args.lr_scheduler_kwargs["factor"] = 0.5;
    const auto optimizer = etude::make_optimizer(args, *module);
    const auto scheduler = etude::make_scheduler(args, *optimizer, 10);
    for (const double metric_now : {1.0, 2.0, 3.0}) scheduler->step(metric_now);
    return scheduler->get_last_lr();
  };
  for (const auto& [type, up, down] : {std::tuple(reduce_lr_on_plateau, 0.1, 0.025), {greedy, 0.8, 0.05}}) {
    CAPTURE(type);
    CHECK(rate(type, {}, {}) == doctest::Approx(down));
    CHECK(rate(type, "loss", {}) == doctest::Approx(down));
    CHECK(rate(type, "accuracy", {}) == doctest::Approx(up));
    CHECK(rate(type, "accuracy", true) == doctest::Approx(up));
    CHECK(rate(type, "accuracy", false) == doctest::Approx(down));
    CHECK(rate(type, "loss", true) == doctest::Approx(up));
    CHECK(rate(type, "accuracy", {}, {{"mode", "min"}}) == doctest::Approx(down));
    CHECK(rate(type, "loss", {}, {{"mode", "max"}}) == doctest::Approx(up));
  }
}

TEST_CASE("a schedule that changes the momentum needs an optimizer that has one") {
  torch::nn::Linear module(3, 2);
  const auto make = [&](etude::OptimizerNames optim, nlohmann::json kwargs, const char* optim_args = "") {
    auto args = arguments(optim, optim_args);
    args.lr_scheduler_type = etude::SchedulerType::one_cycle_lr;
    args.lr_scheduler_kwargs = std::move(kwargs);
    const auto optimizer = etude::make_optimizer(args, *module);
    etude::make_scheduler(args, *optimizer, 10);
    return optimizer->param_groups().back().momentum;
  };
  using enum etude::OptimizerNames;
  for (const auto optim : {adam, adamw_torch_fused, lion, sparse_adam}) CHECK(make(optim, {}) == 0.95);
  for (const auto optim : {sgd, rmsprop}) CHECK(make(optim, {}, "momentum=0.9") == 0.95);
  for (const auto optim : {sgd, rmsprop, adagrad, adafactor}) {
    CHECK_THROWS_WITH_AS(make(optim, {}), doctest::Contains("cycle_momentum is true: must be false with"),
                         etude::ArgumentError);
    CHECK(make(optim, {{"cycle_momentum", false}}) == std::nullopt);
  }
}

TEST_CASE("a custom schedule, and a state that doesn't fit") {
  torch::nn::Linear module(3, 2);
  const auto args = arguments(etude::OptimizerNames::sgd);
  const auto optimizer = etude::make_optimizer(args, *module);
  etude::LambdaLR scheduler(*optimizer, [](std::int64_t step) { return 1.0 + double(step); });
  scheduler.step();
  CHECK(scheduler.get_last_lr() == doctest::Approx(0.2));
  CHECK_FALSE(scheduler.needs_metric());
  auto state = scheduler.state();
  state["lr"].pop_back();
  CHECK_THROWS_WITH_AS(scheduler.load_state(state), doctest::Contains("must have 2 numbers 'lr', but has 1"),
                       etude::CheckpointError);
}

}  // namespace optim_create_test
