#include "etude/tune/memory_estimate.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/folder.hpp"
#include "common/ranks.hpp"
#include "common/silence.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/model_summary.hpp"
#include "etude/libtorch/allocation_counter.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/model/units.hpp"
#include "etude/trainer.hpp"

namespace tune_memory_estimate_test {

using etude::estimate_memory;
using etude::ShardStage;

constexpr std::int64_t width = 128, blocks = 6;

/// A block of a transformer.
struct BlockImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    const auto split = [&](const torch::Tensor& t) {
      return t.reshape({x.size(0), x.size(1), 4, -1}).transpose(1, 2);
    };
    const auto parts = attention(norm1(x)).chunk(3, -1);
    const auto scores = torch::matmul(split(parts[0]), split(parts[1]).transpose(-1, -2)) / 8;
    const auto read = torch::matmul(torch::softmax(scores, -1), split(parts[2]));
    const auto y = x + dropout(output(read.transpose(1, 2).reshape_as(x)));
    return y + narrow(torch::gelu(widen(norm2(y))));
  }
  torch::nn::LayerNorm norm1{
      register_module("norm1", torch::nn::LayerNorm(std::vector<std::int64_t>{width}))};
  torch::nn::LayerNorm norm2{
      register_module("norm2", torch::nn::LayerNorm(std::vector<std::int64_t>{width}))};
  torch::nn::Linear attention{register_module("attention", torch::nn::Linear(width, 3 * width))};
  torch::nn::Linear output{register_module("output", torch::nn::Linear(width, width))};
  torch::nn::Linear widen{register_module("widen", torch::nn::Linear(width, 4 * width))};
  torch::nn::Linear narrow{register_module("narrow", torch::nn::Linear(4 * width, width))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.1))};
};
TORCH_MODULE(Block);

struct TransformerImpl : torch::nn::Module {
  TransformerImpl() {
    for (int i = 0; i < blocks; ++i) layers->push_back(Block());
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    auto x = embedding(tokens);
    for (const auto& block : *layers) x = block(x);
    return head(x.mean(1));
  }
  torch::nn::Embedding embedding{register_module("embedding", torch::nn::Embedding(100, width))};
  etude::Units<Block> layers{register_module("layers", etude::Units<Block>())};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(width, 10))};
};
TORCH_MODULE(Transformer);

etude::Model perceptron() {
  return torch::nn::Sequential(torch::nn::Linear(64, 512), torch::nn::ReLU(), torch::nn::Linear(512, 512),
                               torch::nn::ReLU(), torch::nn::Linear(512, 10));
}

etude::TrainingArguments arguments() {
  auto args = toy::arguments();
  args.per_device_train_batch_size = 32;
  args.learning_rate = 1e-3;
  args.max_steps = 4;
  return args;
}

using MakeModel = std::function<etude::Model()>;

struct Task {
  MakeModel model;
  etude::Dataset dataset;
};

Task perceptron_task() { return {perceptron, {torch::randn({256, 64}), torch::randint(10, {256})}}; }
Task transformer_task() {
  return {[] { return etude::Model(Transformer()); },
          {torch::randint(100, {256, 32}), torch::randint(10, {256})}};
}

etude::TrainerOptions options(const Task& task, const etude::TrainingArguments& args) {
  torch::manual_seed(7);
  return {.model = task.model(),
          .args = args,
          .loss = torch::nn::CrossEntropyLoss(),
          .train_dataset = task.dataset};
}

/// Measures the peak before the first step and the peaks of the steps, with the given counter.
struct Peaks {
  std::shared_ptr<etude::AllocationCounter> counter;
  std::int64_t start = 0, step = 0;
  void on(const etude::StepBegin& e) {
    if (e.state.global_step > 0) return;
    start = counter->peak();
    counter->reset_peak();
  }
  void on(const etude::StepEnd&) { step = counter->peak(); }
};

/// Runs a training whose model and optimizer are created under the counter, and returns the peaks.
template <class... Policies>
Peaks measure(const Task& task, const etude::TrainingArguments& args) {
  const toy::Silence silence;
  const auto counter = std::make_shared<etude::AllocationCounter>(torch::kCPU);
  etude::Trainer<Policies..., Peaks> trainer(options(task, args), Peaks{counter});
  trainer.train();
  return trainer.template callback<Peaks>();
}

double over(std::int64_t estimated, std::int64_t measured) {
  return static_cast<double>(estimated) / static_cast<double>(measured);
}

void check_close(const Task& task, const etude::TrainingArguments& args) {
  etude::Trainer<> trainer(options(task, args));
  const auto estimated = estimate_memory(trainer).one_process;
  const auto measured = measure<>(task, args);
  // The estimate leaves out only a step's losses and a checkpoint's generator states.
  CHECK(measured.step - estimated.peak >= 0);
  CHECK(measured.step - estimated.peak <= 8192);
  CHECK(over(estimated.peak, measured.step) == doctest::Approx(1).epsilon(0.001));
}

TEST_CASE("the peak of a step is that of a training, to a tenth of a percent") {
  auto args = arguments();
  const toy::Folder folder;
  SUBCASE("AdamW") {}
  SUBCASE("AdamW without our kernel") { args.optim = etude::OptimizerNames::adamw_torch; }
  SUBCASE("SGD") { args.optim = etude::OptimizerNames::sgd; }
  SUBCASE("SGD with momentum") {
    args.optim = etude::OptimizerNames::sgd;
    args.optim_args = "momentum=0.9";
  }
  SUBCASE("Adafactor") { args.optim = etude::OptimizerNames::adafactor; }
  SUBCASE("large batches") { args.per_device_train_batch_size = 128; }
  SUBCASE("micro-batches") { args.gradient_accumulation_steps = 3; }
  SUBCASE("bf16") { args.bf16 = true; }
  SUBCASE("copies for checkpoints") {
    toy::save_to(folder, args);
    args.save_async = true;
  }
  check_close(perceptron_task(), args);
  check_close(transformer_task(), args);
}

TEST_CASE("the peak of a step in fp16 is that of a training") {
  if (!etude::computes_in_float16(torch::kCPU)) return;
  auto args = arguments();
  args.fp16 = true;
  check_close(perceptron_task(), args);
}

TEST_CASE("the peak before the first step is that of a training, which lays out its parameters") {
  for (const auto optim : {etude::OptimizerNames::sgd, etude::OptimizerNames::adamw_torch_fused}) {
    auto args = arguments();
    args.optim = optim;
    etude::Trainer<> trainer(options(perceptron_task(), args));
    const auto start = estimate_memory(trainer).one_process.start;
    CHECK(over(start, measure<>(perceptron_task(), args).start) == doctest::Approx(1).epsilon(0.01));
  }
}

TEST_CASE("recomputed units take less memory in the estimate too") {
  auto args = arguments();
  args.gradient_checkpointing = true;
  check_close(transformer_task(), args);
  etude::Trainer<> recomputes(options(transformer_task(), args)),
      keeps(options(transformer_task(), arguments()));
  CHECK(static_cast<double>(estimate_memory(recomputes).one_process.activations) <
        0.4 * static_cast<double>(estimate_memory(keeps).one_process.activations));
}

TEST_CASE("the parts are those of the model and the optimizer") {
  struct Expected {
    etude::OptimizerNames optim;
    const char* optim_args;
    std::int64_t moments;
  };
  constexpr std::int64_t parameters = 4 * (64 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10);
  constexpr std::int64_t rows_and_columns = 4 * (64 + 512 + 512 + 512 + 512 + 10),
                         biases = 4 * (512 + 512 + 10);
  using enum etude::OptimizerNames;
  for (const auto& [optim, optim_args, moments] :
       {Expected{adamw_torch_fused, "", 2 * parameters}, Expected{adam, "amsgrad=true", 3 * parameters},
        Expected{sgd, "", 0}, Expected{sgd, "momentum=0.9", parameters}, Expected{lion, "", parameters},
        Expected{asgd, "", parameters}, Expected{ademamix, "", 3 * parameters},
        Expected{adafactor, "", rows_and_columns + biases},
        Expected{lbfgs, "history_size=10", 22 * parameters}}) {
    auto args = arguments();
    args.optim = optim;
    args.optim_args = optim_args;
    CAPTURE(static_cast<int>(args.optim));
    CAPTURE(args.optim_args);
    args.weight_decay = 0;
    etude::Trainer<> trainer(options(perceptron_task(), args));
    const auto memory = estimate_memory(trainer).one_process;
    CHECK(static_cast<double>(memory.moments) == doctest::Approx(static_cast<double>(moments)).epsilon(1e-3));
    // Each parameter is padded to 64 bytes.
    CHECK(memory.parameters - parameters == 24);
    CHECK(memory.gradients >= parameters);
    CHECK(memory.gradients <= memory.parameters);
    CHECK(memory.buffers == 0);
    CHECK(memory.batches == 32 * (64 * 4 + 8));
    CHECK(memory.copies == 0);
    CHECK(memory.peak > memory.parameters + memory.moments);
    if (optim != lbfgs && optim != adafactor)  // their updates take more than backward passes
      CHECK(memory.peak <= memory.parameters + memory.gradients + memory.moments + memory.activations +
                               memory.batches + 1024);
  }
}

TEST_CASE("an optimizer of the user's own is asked, and is as before") {
  auto given = options(perceptron_task(), arguments());
  const auto module = given.model.module();
  auto adam = std::make_shared<torch::optim::Adam>(module->parameters(), 1e-3);
  given.optimizer = adam;
  etude::Trainer<> trainer(given);
  const auto memory = estimate_memory(trainer).one_process;
  CHECK(static_cast<double>(memory.moments) ==
        doctest::Approx(2 * static_cast<double>(memory.parameters)).epsilon(1e-3));
  CHECK(adam->state().empty());
}

/// A model that has everything a dry run must restore: random numbers, buffers, and different modes.
struct NormedImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return last(dropout(norm(first(x)))); }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(4, 8))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(8))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.5))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(8, 3))};
};
TORCH_MODULE(Normed);

/// Keeps counting after a rewind, so that every epoch has different examples.
struct Stream {
  std::int64_t at = 0, left = 0;
  void reset() { left = 20; }
  std::optional<std::pair<torch::Tensor, torch::Tensor>> next() {
    if (left-- == 0) return std::nullopt;
    ++at;
    return std::pair{torch::full({4}, static_cast<double>(at % 7)), torch::full({}, at % 3, torch::kLong)};
  }
  nlohmann::ordered_json state() const { return {{"at", at}, {"left", left}}; }
  void load_state(const nlohmann::ordered_json& state) {
    at = state.at("at");
    left = state.at("left");
  }
};

/// A training's weights, buffers and next random numbers as bytes, and its losses.
std::string trained(etude::Dataset data, etude::OptimizerNames optim, bool estimated, bool again) {
  const toy::Silence silence;
  auto args = arguments();
  args.optim = optim;
  args.per_device_train_batch_size = 5;
  args.max_steps = 11;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  torch::manual_seed(11);
  Normed net;
  etude::TrainerOptions given{
      .model = net, .args = args, .loss = torch::nn::CrossEntropyLoss(), .train_dataset = std::move(data)};
  if (optim == etude::OptimizerNames::adam)
    given.optimizer = std::make_shared<torch::optim::Adam>(net->parameters(), 1e-2);
  etude::Trainer<> trainer(given);
  if (again) trainer.train();
  if (estimated) estimate_memory(trainer, {.world_size = 4});
  trainer.train();
  std::string result;
  const auto add = [&](const torch::Tensor& tensor) {
    const auto bytes = tensor.detach().contiguous();
    result.append(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes());
  };
  for (const auto& tensor : net->parameters()) add(tensor);
  for (const auto& tensor : net->buffers()) add(tensor);
  for (const auto& [name, tensor] : trainer.optimizer()->state()) add(tensor);
  add(torch::rand({8}));
  for (const auto& line : trainer.state().log_history)
    if (line.contains("loss")) result += line.at("loss").dump();
  return result;
}

TEST_CASE("training after an estimate equals training without, to the bit") {
  using enum etude::OptimizerNames;
  torch::manual_seed(5);
  const std::vector<etude::Dataset> datasets{{torch::randn({20, 4}), torch::randint(3, {20})},
                                             etude::Dataset(Stream())};
  for (std::size_t data = 0; data < datasets.size(); ++data)
    for (const auto optim : {adamw_torch_fused, adam, sgd, adafactor, lbfgs})
      for (const bool again : {false, true}) {
        CAPTURE(data);
        CAPTURE(static_cast<int>(optim));
        CAPTURE(again);
        const auto dataset = [&] { return data == 0 ? datasets[0] : etude::Dataset(Stream()); };
        CHECK(trained(dataset(), optim, false, again) == trained(dataset(), optim, true, again));
      }
}

TEST_CASE("gradients, modes and the lack of an optimizer stay; no event is raised") {
  Normed net;
  net->train();
  net->norm->eval();
  net->first->weight.mutable_grad() = torch::ones({8, 4});
  auto given = options({[&] { return etude::Model(net); }, {torch::randn({8, 4}), torch::randint(3, {8})}},
                       arguments());
  etude::Trainer<toy::Recorder> trainer(given);
  estimate_memory(trainer);
  CHECK(net->first->weight.grad().equal(torch::ones({8, 4})));
  CHECK_FALSE(net->last->weight.grad().defined());
  CHECK(net->dropout->is_training());
  CHECK_FALSE(net->norm->is_training());
  CHECK(trainer.optimizer() == nullptr);
  CHECK(trainer.callback<toy::Recorder>().heard == std::vector<std::string>{"InitEnd"});
}

/// Six layers of 4 MB, and the same data in each process.
Task wide_task() {
  torch::manual_seed(13);
  return {[] {
            torch::nn::Sequential net;
            for (int i = 0; i < 6; ++i) net->push_back(torch::nn::Linear(1024, 1024));
            return etude::Model(net);
          },
          {torch::randn({64, 1024}), torch::randint(1024, {64})}};
}

TEST_CASE("the peaks of each stage of sharding are those of processes that train so") {
  if (toy::launches(3)) return;
  auto args = arguments();
  args.per_device_train_batch_size = 8;
  args.max_steps = 2;
  const auto estimate = [&] {
    const toy::Alone alone;
    etude::Trainer<> trainer(options(wide_task(), args));
    return estimate_memory(trainer, {.world_size = 3});
  }();
  const auto check = [&]<class Policy>(Policy*, const etude::ProcessMemory& estimated) {
    const auto measured = measure<Policy>(wide_task(), args);
    CHECK(over(estimated.start, measured.start) == doctest::Approx(1).epsilon(0.01));
    CHECK(over(estimated.peak, measured.step) == doctest::Approx(1).epsilon(0.03));
  };
  check(static_cast<etude::DistributedDataParallel*>(nullptr), estimate.replicated.value());
  check(static_cast<etude::ShardedDataParallel<1>*>(nullptr),
        estimate.shards.at(ShardStage::optimizer_state));
  check(static_cast<etude::ShardedDataParallel<2>*>(nullptr), estimate.shards.at(ShardStage::gradients));
  check(static_cast<etude::ShardedDataParallel<3>*>(nullptr), estimate.shards.at(ShardStage::parameters));
}

TEST_CASE("stages that the optimizer or the model doesn't permit are refused with the reason") {
  auto args = arguments();
  etude::Trainer<> without_units(
      options({[] { return etude::Model(Normed()); }, {torch::randn({8, 4}), torch::randint(3, {8})}}, args));
  const auto two = estimate_memory(without_units, {.world_size = 2});
  CHECK(two.shards.size() == 2);
  CHECK(two.refused.at(ShardStage::parameters) ==
        "model: tune_memory_estimate_test::NormedImpl has no units: must be a torch::nn::Sequential with "
        "layers, or hold its layers in "
        "etude::Units");
  CHECK(two.table().find(
            "ShardedDataParallel<3>    model: tune_memory_estimate_test::NormedImpl has no units") !=
        std::string::npos);
  args.optim = etude::OptimizerNames::adafactor;
  etude::Trainer<> indivisible(options(perceptron_task(), args));
  const auto none = estimate_memory(indivisible, {.world_size = 2});
  CHECK(none.shards.empty());
  CHECK(none.refused.at(ShardStage::optimizer_state)
            .starts_with("the optimizer is Adafactor: optim must be one of"));
  etude::Trainer<> alone(options(perceptron_task(), arguments()));
  CHECK_FALSE(estimate_memory(alone).replicated);
  CHECK(estimate_memory(alone).shards.empty());
}

TEST_CASE("mistakes are errors that say what to do") {
  etude::Trainer<> trainer(options(perceptron_task(), arguments()));
  CHECK_THROWS_WITH_AS(estimate_memory(trainer, {.world_size = 0}), "world_size is 0: must be at least 1",
                       etude::ArgumentError);
  {
    const etude::AllocationCounter counter(torch::kCPU);
    CHECK_THROWS_WITH_AS(estimate_memory(trainer),
                         "memory can't be counted while a profiler counts it in the same thread",
                         etude::Error);
  }
  auto empty = options(perceptron_task(), arguments());
  empty.train_dataset = {};
  etude::Trainer<> without_data(empty);
  CHECK_THROWS_WITH_AS(estimate_memory(without_data), "train_dataset is not set: estimate_memory() needs it",
                       etude::ArgumentError);
}

TEST_CASE("the table has a line for each way to train") {
  etude::MemoryEstimate estimate{.one_process = {.parameters = 1'000'000,
                                                 .buffers = 2'000,
                                                 .gradients = 1'000'000,
                                                 .moments = 2'000'000,
                                                 .activations = 12'345'678,
                                                 .batches = 40'000,
                                                 .copies = 0,
                                                 .peak = 16'000'000,
                                                 .start = 2'000'000},
                                 .world_size = 8};
  const std::string alone =
      "MB                         parameters      buffers    gradients      moments  activations      batches"
      "       copies     at start    in a step\n" +
      std::string(141, '-') +
      "\n"
      "one process                     1.000        0.002        1.000        2.000       12.346        0.040"
      "        0.000        2.000       16.000\n";
  CHECK(estimate.table() == alone);
  estimate.replicated = estimate.one_process;
  estimate.shards[ShardStage::optimizer_state] = {.peak = 1};
  estimate.refused[ShardStage::parameters] = "no units";
  CHECK(estimate.table().starts_with(alone + "each of 8 processes\nDistributedDataParallel         1.000"));
  CHECK(estimate.table().find("\nShardedDataParallel<1>          0.000") != std::string::npos);
  CHECK(estimate.table().find("ShardedDataParallel<2>") == std::string::npos);
  CHECK(estimate.table().ends_with("\nShardedDataParallel<3>    no units\n"));
}

TEST_CASE("the summary of a model shows the estimate, and the training goes on as without it") {
  std::string shown;
  const auto task = transformer_task();
  const auto train = [&](bool memory) {
    auto args = arguments();
    args.gradient_checkpointing = true;
    auto given = options(task, args);
    const auto module = given.model.module();
    etude::ModelSummaryCallback summary{.memory = memory};
    summary.print = [&](std::string_view text) { shown = text; };
    const toy::Silence silence;
    etude::Trainer<etude::ModelSummaryCallback>(given, summary).train();
    return module;
  };
  const auto without = train(false);
  CHECK(shown.find("one process") == std::string::npos);
  const auto with = train(true);
  CHECK(shown.find("\none process") != std::string::npos);
  for (std::size_t i = 0; i < with->parameters().size(); ++i)
    CHECK(with->parameters()[i].equal(without->parameters()[i]));
}

}  // namespace tune_memory_estimate_test
