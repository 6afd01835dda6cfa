#include "etude/parallel/shards.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/ranks.hpp"
#include "etude/optim/create.hpp"
#include "etude/optim/rules/adam.hpp"
#include "etude/optim/torch_optimizer.hpp"
#include "etude/parallel/gradient_reducer.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/training_arguments.hpp"

namespace parallel_shards_test {

using etude::ShardStage;
using toy::checks;
using toy::Faults;
using Groups = std::vector<etude::ParameterGroup>;
using Make = std::function<std::unique_ptr<etude::Optimizer>(const Groups&)>;

constexpr std::int64_t items = 12;  // in each backward pass of all ranks together

// Parameters of two dtypes, in groups with different weight decay. Gradients are sums of whole numbers, so
// they don't depend on the order of summation.
struct Model {
  Model() {
    add("matrix", torch::randn({33, 7}, generator), 0);
    add("bias", torch::randn({33}, generator), 1);
    add("large", torch::randn({31, 33}, generator), 0);
    add("image", torch::randn({2, 3, 4, 4}, generator).contiguous(at::MemoryFormat::ChannelsLast), 0);
    add("exact", torch::randn({29}, generator, at::kDouble), 1);
    add("sometimes", torch::randn({5, 3}, generator), 1);
    add("uneven", torch::randn({17}, generator), 1);
    add("never", torch::randn({4}, generator), 0);
    add("frozen", torch::randn({21}, generator).set_requires_grad(false), 0);
    add("scalar", torch::randn({}, generator), 0);
  }

  void add(const std::string& name, const torch::Tensor& values, std::size_t group) {
    names.push_back(name);
    parameters.push_back(values.requires_grad() || name == "frozen" ? values
                                                                    : values.set_requires_grad(true));
    groups[group].parameters.emplace_back(name, parameters.back());
  }

  // A loss whose gradient is a sum of random tensors, one for each of the rank's items.
  torch::Tensor loss(std::int64_t pass, std::int64_t step, std::int64_t rank, std::int64_t world) const {
    auto random = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(pass + 100));
    auto total = torch::zeros({}, at::kDouble);
    for (std::int64_t item = 0; item < items; ++item) {
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const auto gradient = torch::randint(-8, 9, parameters[i].sizes(), random, at::kDouble);
        const bool is_used = (names[i] != "sometimes" || step % 3 == 1) &&
                             (names[i] != "uneven" || item == 0) && names[i] != "never" &&
                             parameters[i].requires_grad();
        if (is_used && item % world == rank) total = total + (parameters[i].to(at::kDouble) * gradient).sum();
      }
    }
    return total;
  }

  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7);
  std::vector<std::string> names;
  std::vector<torch::Tensor> parameters;
  Groups groups{{.parameters = {}, .lr = std::nullopt, .weight_decay = 0.1},
                {.parameters = {}, .lr = 0.02, .weight_decay = 0.0}};
};

struct Run {
  Make make;
  std::optional<ShardStage> stage = std::nullopt;
  std::int64_t block_bytes = 1024;
  std::int64_t accumulation = 2;
  std::int64_t from = 0;
  std::int64_t to = 5;
  // Clips; called once the gradients are complete.
  std::function<torch::Tensor(etude::Optimizer&)> clip = nullptr;
  // Called before each step's first backward pass.
  std::function<void(Model&, std::int64_t step)> change = nullptr;
};

struct Result {
  std::vector<torch::Tensor> weights;
  etude::NamedTensors state;  // in rank 0
  std::vector<double> norms;
};

Result train(etude::Communicator& ranks, const Run& run, const Result* resumed = nullptr) {
  Model model;
  if (resumed) {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < model.parameters.size(); ++i) model.parameters[i].copy_(resumed->weights[i]);
  }
  const auto optimizer = run.make(model.groups);
  if (run.stage) etude::shard(*optimizer, ranks, *run.stage, run.block_bytes);
  if (resumed) optimizer->load_state(resumed->state);
  etude::GradientReducer reducer(ranks, {&optimizer->flat_parameters()}, model.names, 700);
  Result result;
  for (auto step = run.from; step < run.to; ++step) {
    if (run.change) run.change(model, step);
    optimizer->zero_grad();
    for (std::int64_t pass = 0; pass < run.accumulation; ++pass) {
      const bool sums = pass + 1 == run.accumulation || reducer.sums_every_backward();
      if (sums) reducer.begin();
      model.loss(step * run.accumulation + pass, step, ranks.rank(), ranks.world_size()).backward();
      if (sums) reducer.finish();
    }
    if (run.clip) result.norms.push_back(run.clip(*optimizer).item<double>());
    optimizer->step();
  }
  for (const auto& parameter : model.parameters) result.weights.push_back(parameter.detach().clone());
  for (auto& [name, tensor] : etude::gather_state(*optimizer, ranks))
    result.state.emplace_back(name, tensor.clone());
  return result;
}

// The results of all ranks.
std::vector<Result> train_as(std::int64_t world, const Run& run, const Result* resumed = nullptr) {
  std::vector<Result> results(static_cast<std::size_t>(world));
  const auto faults = toy::as_ranks(world, [&](etude::Communicator& ranks) {
    results[static_cast<std::size_t>(ranks.rank())] = train(ranks, run, resumed);
  });
  REQUIRE(faults == Faults(static_cast<std::size_t>(world)));
  return results;
}

void check_equal(const std::vector<torch::Tensor>& ours, const std::vector<torch::Tensor>& expected,
                 double tolerance = 0) {
  REQUIRE(ours.size() == expected.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    CAPTURE(i);
    CHECK((ours[i].scalar_type() == expected[i].scalar_type()));
    CHECK((tolerance == 0 ? ours[i].equal(expected[i])
                          : torch::allclose(ours[i], expected[i], tolerance, tolerance)));
  }
}

void check_equal(const etude::NamedTensors& ours, const etude::NamedTensors& expected) {
  REQUIRE(ours.size() == expected.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    CAPTURE(expected[i].first);
    CHECK(ours[i].first == expected[i].first);
    CHECK(ours[i].second.sizes() == expected[i].second.sizes());
    CHECK((ours[i].second.scalar_type() == expected[i].second.scalar_type()));
    CHECK(ours[i].second.equal(expected[i].second));
  }
}

Result alone(Run run) {
  run.stage.reset();
  etude::Communicator one;
  return train(one, run);
}

// The optimizers that need whole parameters, and their types.
const std::map<std::string_view, std::string_view> undivided{{"adafactor", "Adafactor"},
                                                             {"adamw_8bit", "AdamW8bit"},
                                                             {"galore_adamw", "GaLoreAdamW"},
                                                             {"lamb", "LAMB"},
                                                             {"lars", "LARS"},
                                                             {"lbfgs", "LBFGS"},
                                                             {"lion_8bit", "Lion8bit"},
                                                             {"muon", "Muon"},
                                                             {"soap", "SOAP"},
                                                             {"sparse_adam", "SparseAdam"},
                                                             {"stable_adamw", "StableAdamW"}};

Make by_name(std::string_view optim, const std::string& optim_args = "") {
  etude::TrainingArguments args;
  args.optim = etude::from_string<etude::OptimizerNames>(optim);
  args.optim_args = optim_args;
  args.learning_rate = 0.01;
  return [args](Groups groups) {
    if (args.optim == etude::OptimizerNames::rprop)
      for (auto& group : groups) group.weight_decay = 0;
    return etude::make_optimizer(args, groups);
  };
}

// All other optimizers, and some with options that need more moments or change the update.
std::vector<std::pair<std::string, Make>> makers() {
  std::vector<std::pair<std::string, Make>> all{
      {"sgd, nesterov", by_name("sgd", "momentum=0.9,nesterov=true,fused=false")},
      {"adam, amsgrad", by_name("adam", "amsgrad=true")},
      {"adagrad, lr_decay", by_name("adagrad", "lr_decay=0.1")},
      {"rmsprop, centered", by_name("rmsprop", "momentum=0.5,centered=true")},
      {"asgd, averaging", by_name("asgd", "t0=2")},
      {"ademamix, warming up", by_name("ademamix", "t_alpha=4,t_beta3=4")}};
  for (const auto name : etude::enum_names<etude::OptimizerNames>)
    if (!undivided.contains(name)) all.emplace_back(name, by_name(name));
  return all;
}

TEST_CASE("each optimizer in shards gives the weights and the state of one process, to the bit") {
  for (const auto& maker : makers()) {
    CAPTURE(maker.first);
    const auto& make = maker.second;
    const auto expected = alone({.make = make});
    for (const auto stage : {ShardStage::optimizer_state, ShardStage::gradients}) {
      CAPTURE(static_cast<int>(stage));
      for (const std::int64_t world : {1, 2, 3, 4}) {
        CAPTURE(world);
        // Blocks are larger than the buffers, or cut through parameters.
        const auto block_bytes = world == 3 ? std::int64_t{1} << 20 : 1024;
        const auto results = train_as(world, {.make = make, .stage = stage, .block_bytes = block_bytes});
        for (const auto& result : results) check_equal(result.weights, expected.weights);
        check_equal(results.front().state, expected.state);
        for (std::size_t rank = 1; rank < results.size(); ++rank) CHECK(results[rank].state.empty());
      }
    }
  }
}

TEST_CASE("norms and clipping concern all gradients, whichever process owns them") {
  const auto by_norm = [](etude::Optimizer& optimizer) { return optimizer.clip_grad_norm(3); };
  const auto in_step = [](etude::Optimizer& optimizer) { return optimizer.clip_grad_norm_in_step(3); };
  const auto by_value = [](etude::Optimizer& optimizer) {
    optimizer.clip_grad_value(10);
    return optimizer.grad_norm();
  };
  for (const auto& clip :
       std::vector<std::function<torch::Tensor(etude::Optimizer&)>>{by_norm, in_step, by_value}) {
    const Run run{.make = by_name("sgd", "momentum=0.9"), .clip = clip};
    const auto expected = alone(run);
    for (const auto stage : {ShardStage::optimizer_state, ShardStage::gradients}) {
      for (const std::int64_t world : {2, 3}) {
        auto sharded = run;
        sharded.stage = stage;
        for (const auto& result : train_as(world, sharded)) {
          check_equal(result.weights, expected.weights, 1e-6);
          REQUIRE(result.norms.size() == 5);
          for (std::size_t i = 0; i < 5; ++i)
            CHECK(result.norms[i] == doctest::Approx(expected.norms[i]).epsilon(1e-6));
        }
      }
    }
  }
}

TEST_CASE("a state of 4 processes resumes in 2, and theirs in 1, as if one process had gone on") {
  for (const auto stage : {ShardStage::optimizer_state, ShardStage::gradients}) {
    const Make make = by_name("adamw_torch_fused");
    const auto four = train_as(4, {.make = make, .stage = stage, .to = 3}).front();
    const auto two = train_as(2, {.make = make, .stage = stage, .from = 3, .to = 5}, &four).front();
    const auto one = train_as(1, {.make = make, .stage = stage, .from = 5, .to = 7}, &two).front();
    const auto back = train_as(3, {.make = make, .stage = stage, .from = 7, .to = 8}, &one).front();
    const auto expected = alone({.make = make, .to = 8});
    check_equal(back.weights, expected.weights);
    check_equal(back.state, expected.state);
  }
}

TEST_CASE("a model that changes between steps keeps the state of each parameter") {
  const auto change = [](Model& model, std::int64_t step) {
    for (std::size_t i = 0; i < model.names.size(); ++i) {
      if (step == 2 && model.names[i] == "frozen") model.parameters[i].set_requires_grad(true);
      if (step == 3) model.parameters[i].set_data(model.parameters[i].to(at::kDouble));
      if (step == 4 && model.names[i] == "large") model.parameters[i].set_requires_grad(false);
    }
  };
  const Run run{.make = by_name("adamw_torch_fused"), .change = change};
  const auto expected = alone(run);
  for (const auto stage : {ShardStage::optimizer_state, ShardStage::gradients}) {
    auto sharded = run;
    sharded.stage = stage;
    const auto results = train_as(3, sharded);
    for (const auto& result : results) check_equal(result.weights, expected.weights);
    check_equal(results.front().state, expected.state);
  }
}

TEST_CASE("a model that changes while only a shard of the gradients is there is an error") {
  for (const auto stage : {ShardStage::optimizer_state, ShardStage::gradients}) {
    const auto unfreeze = [](Model& model) { model.parameters[8].set_requires_grad(true); };
    const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
      Model model;
      etude::AdamW optimizer(model.groups);
      etude::shard(optimizer, ranks, stage);
      etude::GradientReducer reducer(ranks, {&optimizer.flat_parameters()}, model.names);
      optimizer.zero_grad();
      reducer.begin();
      model.loss(0, 0, ranks.rank(), 2).backward();
      reducer.finish();
      unfreeze(model);
      optimizer.step();
    });
    for (const auto& fault : faults)
      CHECK(toy::contains(fault, "change them between a step and the next backward pass"));
  }
}

// An optimizer that reports the memory of its moment and its gradients.
struct Measured : etude::FlatOptimizer {
  explicit Measured(const Groups& groups) : FlatOptimizer(groups, 0.01, 0, {{"sum"}}, {}, std::nullopt) {}

  void update_range(const Range& range, const etude::ParamGroup&, std::int64_t) override {
    moment_bytes = range.moments[0].storage().nbytes();
    gradient_bytes = range.gradients.storage().nbytes();
  }

  nlohmann::ordered_json group_options(std::size_t group) override {
    return with_numbers_of(group, nlohmann::ordered_json::object());
  }

  std::size_t moment_bytes = 0, gradient_bytes = 0;
};

// Counts messages that have begun but haven't been waited for.
struct Counting : etude::Communicator {
  explicit Counting(etude::Communicator& real) : Communicator(real.launch()), real_(real) {}

  etude::PendingMessage begin_sum(const torch::Tensor& tensor) override { return real_.begin_sum(tensor); }
  void gather_parts(const torch::Tensor& tensor) override { real_.gather_parts(tensor); }
  etude::PendingMessage begin_sum_parts(const torch::Tensor& tensor) override {
    most = std::max(most, ++now);
    return [this, arrive = real_.begin_sum_parts(tensor)] {
      arrive();
      --now;
    };
  }

  int now = 0, most = 0;

 private:
  etude::Communicator& real_;
};

TEST_CASE("a process holds no more moments, and in stage 2 no more gradients, than its share") {
  constexpr std::int64_t layers = 20, width = 64 * 64, bytes = layers * width * 4;
  for (const auto stage : {ShardStage::optimizer_state, ShardStage::gradients}) {
    for (const std::int64_t world : {2, 4}) {
      const auto faults = toy::as_ranks(world, [&](etude::Communicator& real) {
        Counting ranks(real);
        std::vector<torch::Tensor> weights;
        std::vector<std::string> names;
        Groups groups(1);
        for (std::int64_t i = 0; i < layers; ++i) {
          weights.push_back(torch::ones({64, 64}).set_requires_grad(true));
          names.push_back("layer" + std::to_string(i));
          groups[0].parameters.emplace_back(names.back(), weights.back());
        }
        Measured optimizer(groups);
        etude::shard(optimizer, ranks, stage, 2 * width * 4);
        etude::GradientReducer reducer(ranks, {&optimizer.flat_parameters()}, names);
        optimizer.zero_grad();
        reducer.begin();
        auto x = torch::ones({1, 64});
        for (const auto& weight : weights) x = x.matmul(weight).tanh();
        x.sum().backward();
        const bool sent_all = ranks.now > 0;
        reducer.finish();
        optimizer.step();
        const std::lock_guard lock(checks);
        const bool cuts = stage == ShardStage::gradients;
        CHECK(sent_all);
        CHECK(reducer.chunks() == 10);
        CHECK(reducer.sent_early() == 10);
        CHECK(optimizer.moment_bytes == bytes / world);
        CHECK(optimizer.gradient_bytes == (cuts ? bytes / world : bytes));
        CHECK(optimizer.flat_parameters().gradients().size() == 1);
        for (const auto& weight : weights) CHECK(weight.grad().defined() == !cuts);
        CHECK(ranks.most == (cuts ? 1 : 10));  // blocks of gradients in transfer
      });
      CHECK(faults == Faults(static_cast<std::size_t>(world)));
    }
  }
}

TEST_CASE("blocks of gradients are small beside a share, whatever their limit") {
  const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
    for (const auto stage : {ShardStage::optimizer_state, ShardStage::gradients}) {
      const auto weight = torch::ones({4 << 20}).set_requires_grad(true);  // 16 MiB
      Groups groups(1);
      groups[0].parameters.emplace_back("weight", weight);
      Measured optimizer(groups);
      etude::shard(optimizer, ranks, stage);
      etude::GradientReducer reducer(ranks, {&optimizer.flat_parameters()}, {"weight"});
      reducer.begin();
      weight.sum().backward();
      reducer.finish();
      const std::lock_guard lock(checks);
      CHECK(reducer.chunks() == (stage == ShardStage::gradients ? 16 : 1));
    }
  });
  CHECK(faults == Faults(2));
}

TEST_CASE("the state in shards is gathered by all, never read by one") {
  const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
    Model model;
    etude::Adam optimizer(model.groups);
    etude::shard(optimizer, ranks, ShardStage::optimizer_state);
    optimizer.zero_grad();
    model.loss(0, 0, 0, 1).backward();
    optimizer.step();
    optimizer.state();
  });
  for (const auto& fault : faults) CHECK(toy::contains(fault, "call gather_state in all processes"));
}

TEST_CASE("an optimizer that needs whole parameters is refused by name") {
  etude::Communicator ranks;
  const auto fault = [&](const auto& make) {
    Model model;
    for (auto& group : model.groups)
      group = {.parameters = group.parameters, .lr = std::nullopt, .weight_decay = 0.0};
    const auto optimizer = make(model.groups);
    return toy::fault_of<etude::ArgumentError>(
        [&] { etude::shard(*optimizer, ranks, ShardStage::optimizer_state); });
  };
  std::vector<std::string_view> divisible;
  std::ranges::copy_if(etude::enum_names<etude::OptimizerNames>, std::back_inserter(divisible),
                       [](auto name) { return !undivided.contains(name); });
  const std::string allowed =
      fmt::format(": optim must be one of {} with ShardedDataParallel, which cuts through parameters",
                  fmt::join(divisible, ", "));
  for (const auto& [name, type] : undivided)
    CHECK(fault(by_name(name)) == fmt::format("the optimizer is {}{}", type, allowed));
  CHECK(fault([](const Groups& groups) {
          const auto& [name, parameter] = groups[0].parameters[0];
          auto sgd = std::make_shared<torch::optim::SGD>(std::vector<torch::Tensor>{parameter},
                                                         torch::optim::SGDOptions(0.1));
          return std::make_unique<etude::TorchOptimizer>(sgd, etude::NamedTensors{{name, parameter}});
        }) == "the optimizer is SGD" + allowed);
}

}  // namespace parallel_shards_test
