#include <doctest/doctest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/exported_model.hpp"
#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/ranks.hpp"
#include "common/sines.hpp"
#include "common/toy.hpp"
#include "etude/base/message.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"
#include "etude/trainer.hpp"

/// A model that Python exported trains like the same model written in C++.
namespace loop_exported_models_test {

using toy::sines::problem;

namespace x = toy::exported;

std::string linear(const std::string& input, const std::string& layer, const std::string& output) {
  return x::call("aten.linear.default",
                 {{"input", x::tensor(input)},
                  {"weight", x::tensor("p_" + layer + ".weight")},
                  {"bias", x::tensor("p_" + layer + ".bias")}},
                 {x::tensor(output)});
}

etude::ExportedModule exported() {
  const x::Model model{
      .inputs = {x::parameter("0.weight"), x::parameter("0.bias"), x::parameter("2.weight"),
                 x::parameter("2.bias"), x::batch("x", {"s0", "5"})},
      .nodes = {linear("x", "0", "hidden"),
                x::call("aten.tanh.default", {{"self", x::tensor("hidden")}}, {x::tensor("tanh")}),
                linear("tanh", "2", "logits")},
      .outputs = {{"logits", "logits"}}};
  std::map<std::string, torch::Tensor> weights;
  for (const auto& each : toy::sines::net()->named_parameters())
    weights[each.key()] = each.value().detach().clone();
  return x::module_of(model, std::move(weights));
}

etude::TrainingArguments arguments(std::int64_t batch) {
  auto args = toy::sines::arguments(batch, 2);
  args.logging_strategy = etude::IntervalStrategy::no;
  args.weight_decay = 0.1;
  return args;
}

using Weights = std::vector<std::pair<std::string, torch::Tensor>>;

template <class Trainer>
Weights weights(Trainer& trainer) {
  Weights result;
  for (const auto& [name, tensor] : trainer.model().state_dict())
    result.emplace_back(name, tensor.detach().clone());
  return result;
}

void check_equal(const Weights& a, const Weights& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(a[i].first);
    CHECK(a[i].first == b[i].first);
    CHECK(a[i].second.equal(b[i].second));
  }
}

/// Trains both models and compares weights and losses bit for bit.
template <class... Callbacks>
void check_equal_training(const etude::TrainingArguments& args) {
  etude::Trainer<Callbacks...> ours(problem(exported(), args)), theirs(problem(toy::sines::net(), args));
  CHECK(ours.train().training_loss == theirs.train().training_loss);
  check_equal(weights(ours), weights(theirs));
  CHECK(ours.evaluate().at("eval_loss") == theirs.evaluate().at("eval_loss"));
  CHECK_FALSE(weights(ours)[0].second.equal(toy::sines::net()->parameters()[0]));
}

TEST_CASE("an exported model trains as one that is written in C++, with accumulation, clipping and decay") {
  check_equal_training(arguments(4));
}

TEST_CASE("an exported model trains in bf16 as one that is written in C++, and has float32 weights") {
  auto args = arguments(4);
  args.bf16 = true;
  check_equal_training(args);
  etude::Trainer<> trainer(problem(exported(), args));
  trainer.train();
  CHECK(weights(trainer)[0].second.dtype() == torch::kFloat);
}

TEST_CASE("an exported model trains in pure_bf16 as one that is written in C++") {
  auto args = arguments(4);
  args.pure_bf16 = true;
  check_equal_training(args);
}

TEST_CASE("parameters of an exported model that are frozen by name keep their values") {
  const auto frozen = [](auto model) {
    for (const auto& each : model->named_parameters())
      if (each.key().starts_with("0.")) each.value().set_requires_grad(false);
    return etude::Model(model);
  };
  etude::Trainer<> ours(problem(frozen(exported()), arguments(4))),
      theirs(problem(frozen(toy::sines::net()), arguments(4)));
  ours.train();
  theirs.train();
  check_equal(weights(ours), weights(theirs));
  const auto start = toy::sines::net()->named_parameters();
  for (const auto& [name, tensor] : weights(ours)) {
    CAPTURE(name);
    CHECK(tensor.equal(start[name]) == name.starts_with("0."));
  }
}

TEST_CASE("an exported model without compiled graphs trains silently, unless one is required") {
  auto args = arguments(4);
  args.log_level = etude::LogLevel::warning;
  std::string messages;
  const auto before =
      etude::set_message_handler([&](std::string_view, std::string_view text) { messages += text; });
  etude::Trainer<>(problem(exported(), args)).train();
  etude::set_message_handler(before);
  CHECK(messages == "");
  args.compiled_graph = etude::CompiledGraphMode::required;
  CHECK(toy::fault_of<etude::ArgumentError>([&] { etude::Trainer<>(problem(exported(), args)).train(); }) ==
        "compiled_graph is required: must be auto or off, since ExportedModule has no compiled "
        "graph (etude::load_exported loads those of a file with run_compiled_code = true)");
}

TEST_CASE("in two processes, an exported model trains as one that is written in C++, sharded or not") {
  if (toy::launches(2)) return;
  check_equal_training<etude::DistributedDataParallel>(arguments(4));
  check_equal_training<etude::ShardedDataParallel<1>>(arguments(4));
  check_equal_training<etude::ShardedDataParallel<2>>(arguments(4));
}

struct CountSteps {
  std::int64_t steps = 0;
  void on(const etude::StepEnd&) { ++steps; }
};

TEST_CASE("in two processes, a sharded training of an exported model is resumed to the bit") {
  if (!toy::is_rank()) {
    const toy::Folder folder;
    CHECK(toy::launches(2, {"ETUDE_TEST_FOLDER=" + std::string(folder)}));
    return;
  }
  auto args = arguments(4);
  toy::save_to(std::getenv("ETUDE_TEST_FOLDER"), args, 3);
  const auto trained = [](etude::TrainingArguments given, const etude::TrainOptions& how,
                          std::int64_t steps) {
    etude::Trainer<etude::ShardedDataParallel<2>, CountSteps> trainer(problem(exported(), std::move(given)));
    trainer.train(how);
    CHECK(trainer.template callback<CountSteps>().steps == steps);
    return weights(trainer);
  };
  const auto unbroken = trained(args, {}, 6);
  check_equal(trained(args, {.resume_from_checkpoint = args.output_dir + "/checkpoint-3"}, 3), unbroken);
}

}  // namespace loop_exported_models_test
