#include "etude/model/compiled_graph.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/optim/lbfgs.h>
#include <torch/types.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/logged.hpp"
#include "common/ranks.hpp"
#include "common/sines.hpp"
#include "common/toy.hpp"
#include "etude/base/message.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/model/units.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"
#include "etude/reflect/json.hpp"
#include "etude/trainer.hpp"
#include "etude/tune/learning_rate_finder.hpp"

/// Trainings of a model that implements HasCompiledGraph.
namespace loop_compiled_graph_test {

using etude::CompiledGraphMode;
using etude::Tensors;
using toy::contains;
using toy::fault_of;
using Texts = std::vector<std::string>;

/// The gradients that the backward pass from `loss` returns.
struct Stored {
  torch::Tensor loss, logits, of_weight, of_bias;
};

struct StoredGradients : torch::autograd::Function<StoredGradients> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const torch::Tensor& /*weight*/,
                                                const torch::Tensor& /*bias*/, const Stored& stored) {
    context->save_for_backward({stored.of_weight, stored.of_bias});
    context->set_materialize_grads(false);
    return {stored.loss, stored.logits};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    if (gradients[1].defined()) throw etude::Error("the logits of a compiled graph have no gradient");
    const auto stored = context->get_saved_variables();
    return {stored[0] * gradients[0], stored[1] * gradients[0], torch::Tensor()};
  }
};

/// Softmax regression with noisy inputs and a buffer that counts examples. Its "compiled graph" computes the
/// loss and the gradients by their formulas.
struct NetImpl : torch::nn::Module, etude::HasCompiledGraph {
  explicit NetImpl(double noise_level = 0.1) : noise(noise_level) {
    torch::manual_seed(3);
    layers->push_back(torch::nn::Linear(5, 3));
  }

  Tensors forward(const Tensors& inputs) {
    ++(is_training() ? forward_calls : evaluation_calls);
    check_memory(inputs[0]);
    const auto logits = (*layers)[0](noisy(inputs[0]));
    if (inputs.size() == 1) return logits;
    return {{"loss", torch::nn::functional::cross_entropy(logits, inputs[1])}, {"logits", logits}};
  }

  Result forward_compiled(const Tensors& inputs) override {
    CHECK(is_training());
    CHECK(torch::GradMode::is_enabled());
    if (refuse)
      if (auto why = refuse(inputs); !why.empty()) return {{}, why};
    ++compiled_calls;
    check_memory(inputs[0]);
    rows.push_back(inputs[0].size(0));
    dtype = inputs[0].scalar_type();
    autocast = etude::autocast_in_force(torch::kCPU);
    const auto weight = (*layers)[0]->weight, bias = (*layers)[0]->bias;
    Stored stored;
    {
      const torch::NoGradGuard no_grad;
      const auto x = noisy(inputs[0]);
      const auto labels = inputs[1];
      stored.logits = torch::matmul(x, weight.t()) + bias;
      const auto counts = labels.ne(-100).to(torch::kFloat).unsqueeze(1);
      const auto one_hot = torch::one_hot(labels.clamp(0, 2), 3) * counts;
      const auto exponentials = (stored.logits.to(torch::kFloat) - stored.logits.max()).exp();
      const auto probabilities = exponentials / exponentials.sum(1, true);
      const auto items = counts.sum();
      stored.loss = -(probabilities.log() * one_hot).sum() / items;
      const auto errors = (probabilities * counts - one_hot) / items;
      stored.of_weight = torch::matmul(errors.t(), x.to(torch::kFloat)).to(weight.scalar_type());
      stored.of_bias = errors.sum(0).to(bias.scalar_type());
    }
    const auto results = StoredGradients::apply(weight, bias, stored);
    return {{{"loss", results[0]}, {"logits", results[1]}}, ""};
  }

  bool has_compiled_graph() const override { return has_graph; }
  std::string why_no_graph(std::optional<torch::ScalarType> given) override {
    asked_for.push_back(given);
    return fault ? fault() : "";
  }
  etude::LossItems loss_items() const { return etude::LossItems::labels; }

  double noise;
  bool has_graph = true;
  std::int64_t most_rows = 1000;  // more don't fit in memory
  std::function<std::string(const Tensors&)> refuse;
  std::function<std::string()> fault;  // why the graph can't be used, whatever the batch is
  std::vector<std::optional<torch::ScalarType>> asked_for;
  int forward_calls = 0, evaluation_calls = 0, compiled_calls = 0;
  std::vector<std::int64_t> rows;
  std::optional<torch::ScalarType> dtype, autocast;
  etude::Units<torch::nn::Linear> layers{register_module("layers", etude::Units<torch::nn::Linear>())};
  torch::Tensor seen = register_buffer("seen", torch::zeros({}, torch::kLong));

 private:
  void check_memory(const torch::Tensor& x) const {
    if (x.size(0) > most_rows)
      throw c10::OutOfMemoryError({__func__, __FILE__, 0}, "DefaultCPUAllocator: can't allocate memory");
  }
  torch::Tensor noisy(const torch::Tensor& x) {
    if (!is_training()) return x;
    seen.add_(x.size(0));
    return noise > 0 ? x * (1 + noise * torch::rand_like(x)) : x;
  }
};
TORCH_MODULE(Net);

/// The training arguments: six steps in two epochs of 12 examples, with warnings.
etude::TrainingArguments arguments(CompiledGraphMode mode = CompiledGraphMode::automatic) {
  auto args = toy::sines::arguments(4, 1);
  args.logging_steps = 1;
  args.weight_decay = 0.1;
  args.log_level = etude::LogLevel::warning;
  args.report = etude::ReportMode::quiet;
  args.compiled_graph = mode;
  return args;
}

etude::TrainerOptions problem(const Net& net, etude::TrainingArguments args, std::int64_t count = 12) {
  return {.model = net,
          .args = std::move(args),
          .train_dataset = toy::sines::examples(count),
          .eval_dataset = toy::sines::examples(3)};
}

/// Collects messages about compiled graphs during its lifetime.
class Messages {
 public:
  Messages()
      : before_(etude::set_message_handler([this](std::string_view level, std::string_view text) {
          if (contains(text, "compiled graph")) texts_.push_back(fmt::format("{}: {}", level, text));
        })) {}
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages() { etude::set_message_handler(before_); }
  const Texts& texts() const { return texts_; }

 private:
  Texts texts_;
  etude::MessageHandler before_;
};

/// The state and the logged losses after a training.
struct Result {
  std::vector<torch::Tensor> state;
  std::vector<double> losses;
};

template <class Trainer>
Result result_of(Trainer& trainer) {
  return {toy::sines::weights(trainer), toy::logged(trainer.state(), "loss")};
}

template <class... Callbacks>
Result train(etude::TrainerOptions options, const etude::TrainOptions& how = {}) {
  etude::Trainer<Callbacks...> trainer(std::move(options));
  trainer.train(how);
  return result_of(trainer);
}

void check_close(const Result& a, const Result& b, double tolerance = 1e-5) {
  toy::sines::check_close(a.state, b.state, tolerance);
  REQUIRE(a.losses.size() == b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    CHECK(a.losses[i] == doctest::Approx(b.losses[i]).epsilon(tolerance));
}

void check_equal(const Result& a, const Result& b) {
  CHECK(a.losses == b.losses);
  REQUIRE(a.state.size() == b.state.size());
  for (std::size_t i = 0; i < a.state.size(); ++i) CHECK(a.state[i].equal(b.state[i]));
}

/// Trains with the compiled graph in all steps, and compares the result with a training by `forward`.
void check_as_forward(
    const std::function<etude::TrainerOptions(const Net&, CompiledGraphMode)>& options, int batches,
    double tolerance = 1e-5, const std::function<Net()>& make = [] { return Net(); }) {
  const auto by_graph = make(), by_forward = make();
  const Messages messages;
  const auto compiled = train(options(by_graph, CompiledGraphMode::required));
  CHECK(by_graph->compiled_calls == batches);
  CHECK(by_graph->forward_calls == 0);
  const auto expected = train(options(by_forward, CompiledGraphMode::off));
  CHECK(by_forward->compiled_calls == 0);
  CHECK(by_forward->forward_calls == batches);
  CHECK(messages.texts() == Texts{});
  CHECK_FALSE(compiled.state[0].equal(make()->parameters()[0]));
  check_close(compiled, expected, tolerance);
}

TEST_CASE("compiled_graph is auto, off or required as text, and auto by default") {
  const auto parsed = [](const char* value) {
    return etude::parse_arguments<etude::TrainingArguments>({"--compiled_graph", value}).compiled_graph;
  };
  CHECK(parsed("auto") == CompiledGraphMode::automatic);
  CHECK(parsed("off") == CompiledGraphMode::off);
  CHECK(parsed("required") == CompiledGraphMode::required);
  CHECK(etude::TrainingArguments().compiled_graph == CompiledGraphMode::automatic);
  CHECK(etude::to_json_value(etude::TrainingArguments())["compiled_graph"] == "auto");
  const auto fault = fault_of<etude::ArgumentError>([&] { parsed("automatic"); });
  CHECK(contains(fault, "auto, off, required"));
  CHECK(contains(fault_of<etude::ArgumentError>([&] {
                   etude::parse_arguments<etude::TrainingArguments>({"--torch_compile", "true"});
                 }),
                 "compiled_graph"));
}

TEST_CASE("training steps use the graph; evaluations and predictions use forward") {
  Net net;
  auto args = arguments();
  args.eval_strategy = etude::IntervalStrategy::epoch;
  const Messages messages;
  etude::Trainer<> trainer(problem(net, args));
  trainer.train();
  CHECK(net->compiled_calls == 6);
  CHECK(net->rows == std::vector<std::int64_t>(6, 4));
  CHECK(net->evaluation_calls == 2 * 3);
  CHECK(net->seen.item<std::int64_t>() == 24);
  trainer.predict(toy::sines::examples(2));
  CHECK(net->evaluation_calls == 2 * 3 + 2);
  CHECK(net->compiled_calls == 6);
  CHECK(net->forward_calls == 0);
  CHECK(messages.texts() == Texts{});
}

TEST_CASE("the graph and forward give the same losses, weights and buffers, with random numbers too") {
  check_as_forward([](const Net& net, CompiledGraphMode mode) { return problem(net, arguments(mode)); }, 6);
}

TEST_CASE("a handler reads the outputs of the graph in BackwardBegin, and the events are the same") {
  struct Reads {
    std::vector<std::int64_t> columns = {};
    void on(const etude::BackwardBegin& e) { columns.push_back(e.output["logits"].size(1)); }
  };
  const auto heard = [](CompiledGraphMode mode) {
    Net net;
    etude::Trainer<Reads, toy::Recorder> trainer(problem(net, arguments(mode)));
    trainer.train();
    CHECK(net->compiled_calls == (mode == CompiledGraphMode::off ? 0 : 6));
    CHECK(trainer.template callback<Reads>().columns == std::vector<std::int64_t>(6, 3));
    return trainer.template callback<toy::Recorder>().names();
  };
  CHECK(heard(CompiledGraphMode::required) == heard(CompiledGraphMode::off));
}

/// Checks that the steps of a training use forward, and that each trainer says so only once, or refuses to
/// train if the graph is required.
template <class Trainer = etude::Trainer<>>
void check_refused(
    const std::string& reason, const std::function<void(etude::TrainerOptions&)>& change = [](auto&) {}) {
  CAPTURE(reason);
  const auto changed = [&](const Net& net, CompiledGraphMode mode) {
    auto options = problem(net, arguments(mode));
    change(options);
    return options;
  };
  const Messages messages;
  Net net;
  Trainer trainer(changed(net, CompiledGraphMode::automatic));
  trainer.train();
  trainer.train();
  CHECK(net->compiled_calls == 0);
  CHECK(net->forward_calls >= 12);
  CHECK(messages.texts() == Texts{"warning: the compiled graph isn't used: " + reason});

  const Messages none;
  Net by_forward;
  Trainer(changed(by_forward, CompiledGraphMode::off)).train();
  CHECK(by_forward->compiled_calls == 0);
  CHECK(none.texts() == Texts{});

  Net unused;
  Trainer strict(changed(unused, CompiledGraphMode::required));
  CHECK(fault_of<etude::ArgumentError>([&] { strict.train(); }) ==
        "compiled_graph is required: must be auto or off, since " + reason);
  CHECK(unused->compiled_calls + unused->forward_calls == 0);
}

struct OwnStep : etude::TrainerBase<OwnStep> {
  using TrainerBase::TrainerBase;
  torch::Tensor training_step(etude::Batch& batch) { return TrainerBase::training_step(batch); }
};
struct OwnLoss : etude::TrainerBase<OwnLoss> {
  using TrainerBase::TrainerBase;
  etude::LossOutput compute_loss(const etude::Batch& batch, std::optional<double> items) {
    return TrainerBase::compute_loss(batch, items);
  }
};
struct Doubles {
  void on(etude::BackwardBegin& e) { e.loss = e.loss * 2; }
};

etude::LossOutput cross_entropy(etude::Model& model, const etude::Batch& batch, std::optional<double>) {
  const auto logits = model.forward(batch.inputs);
  return {.loss = torch::nn::functional::cross_entropy(logits, batch.labels), .outputs = logits};
}

TEST_CASE("forward computes a step whose loss isn't simply the model's own") {
  check_refused<OwnStep>("the trainer overrides training_step");
  check_refused<OwnLoss>("the trainer overrides compute_loss");
  check_refused("compute_loss is set, but the graph computes the model's own loss",
                [](auto& options) { options.compute_loss = cross_entropy; });
  check_refused("loss is set, but the graph computes the model's own loss",
                [](auto& options) { options.loss = torch::nn::CrossEntropyLoss(); });
  check_refused("each optimizer has its own compute_loss", [](auto& options) {
    options.optimizers = {{"layers", {.compute_loss = cross_entropy}}};
  });
  check_refused("label_smoothing_factor is 0.25, but the graph doesn't smooth labels",
                [](auto& options) { options.args.label_smoothing_factor = 0.25; });
  check_refused<etude::Trainer<Doubles>>("Doubles may replace the loss in BackwardBegin");
}

TEST_CASE("forward computes a step with arguments that a compiled graph can't follow") {
  check_refused("gradient_checkpointing is true, but the graph was compiled without it",
                [](auto& options) { options.args.gradient_checkpointing = true; });
  check_refused("full_determinism is true, but compiled code may sum in any order",
                [](auto& options) { options.args.full_determinism = true; });
}

TEST_CASE("all reasons why a required graph can't be used are listed at once") {
  Net net;
  auto options = problem(net, arguments(CompiledGraphMode::required));
  options.loss = torch::nn::CrossEntropyLoss();
  options.args.gradient_checkpointing = true;
  etude::Trainer<> trainer(options);
  const auto fault = fault_of<etude::ArgumentError>([&] { trainer.train(); });
  CHECK(contains(fault, "since loss is set"));
  CHECK(contains(fault, "since gradient_checkpointing is true"));
}

TEST_CASE("a required graph is checked for all phases before the first one begins") {
  Net net;
  auto options = problem(net, arguments(CompiledGraphMode::required));
  options.phases = {{"first", {.num_train_epochs = 1}},
                    {"second", {.num_train_epochs = 1, .compute_loss = cross_entropy}}};
  CHECK(fault_of<etude::ArgumentError>([&] { train(options); }) ==
        "phase 'second': compiled_graph is required: must be auto or off, since compute_loss is set, but the "
        "graph computes the model's own loss");
  CHECK(net->compiled_calls == 0);

  options.args.compiled_graph = CompiledGraphMode::automatic;
  const Messages messages;
  train(options);
  CHECK(net->compiled_calls == 3);
  CHECK(net->forward_calls == 3);
  CHECK(messages.texts().size() == 1);
}

/// A model that only contains one with a graph.
struct WrapperImpl : torch::nn::Module {
  explicit WrapperImpl(const Net& net) : inner(register_module("inner", net)) {}
  Tensors forward(const Tensors& inputs) { return inner->forward(inputs); }
  Net inner;
};
TORCH_MODULE(Wrapper);

TEST_CASE("only the graph of the model itself is used, and a submodule's is reported") {
  for (const auto mode : {CompiledGraphMode::automatic, CompiledGraphMode::required}) {
    Net net;
    auto options = problem(net, arguments(mode));
    options.model = Wrapper(net);
    const Messages messages;
    const std::string reason =
        "only the submodule inner has a compiled graph, not loop_compiled_graph_test::WrapperImpl itself";
    if (mode == CompiledGraphMode::required) {
      CHECK(fault_of<etude::ArgumentError>([&] { train(options); }) ==
            "compiled_graph is required: must be auto or off, since " + reason);
    } else {
      train(options);
      CHECK(net->forward_calls == 6);
      CHECK(messages.texts() == Texts{"warning: the compiled graph isn't used: " + reason});
    }
    CHECK(net->compiled_calls == 0);
  }
}

TEST_CASE("a model without a graph trains silently, unless a graph is required") {
  Net net;
  net->has_graph = false;
  const Messages messages;
  auto options = problem(net, arguments());
  train(options);
  CHECK(net->forward_calls == 6);
  CHECK(net->compiled_calls == 0);
  CHECK(messages.texts() == Texts{});
  const auto no_graph = [](const char* model) {
    return fmt::format(
        "compiled_graph is required: must be auto or off, since {} has no compiled graph "
        "(etude::load_exported loads those of a file with run_compiled_code = true)",
        model);
  };
  options.args.compiled_graph = CompiledGraphMode::required;
  CHECK(fault_of<etude::ArgumentError>([&] { train(options); }) ==
        no_graph("loop_compiled_graph_test::NetImpl"));
  auto args = toy::arguments();
  args.compiled_graph = CompiledGraphMode::required;
  CHECK(fault_of<etude::ArgumentError>([&] { train(toy::options(args)); }) == no_graph("toy::LineImpl"));
}

TEST_CASE(
    "if a graph can't be used whatever the batch is, the trainer says why once, before the first step") {
  const auto unusable = [] {
    Net net;
    net->fault = [] { return "it is broken"; };
    net->refuse = [](const Tensors&) { return std::string("it is broken"); };
    return net;
  };
  Net net = unusable();
  const Messages messages;
  train(problem(net, arguments()));
  CHECK(net->forward_calls == 6);
  CHECK(messages.texts() == Texts{"warning: the compiled graph isn't used: it is broken"});

  Net unused = unusable();
  etude::Trainer<toy::Recorder> strict(problem(unused, arguments(CompiledGraphMode::required)));
  CHECK(fault_of<etude::ArgumentError>([&] { strict.train(); }) ==
        "compiled_graph is required: must be auto or off, since it is broken");
  CHECK(unused->compiled_calls + unused->forward_calls == 0);
  CHECK_FALSE(contains(strict.callback<toy::Recorder>().names(), "TrainBegin"));

  Net off = unusable();
  const Messages none;
  train(problem(off, arguments(CompiledGraphMode::off)));
  CHECK(off->asked_for.empty());
  CHECK(none.texts() == Texts{});
}

TEST_CASE("a graph that can't be used when a training begins is used as soon as it can") {
  Net net;
  net->fault = [] { return "a parameter is frozen"; };
  net->refuse = [calls = 0](const Tensors&) mutable {
    return std::string(++calls <= 2 ? "a parameter is frozen" : "");
  };
  const Messages messages;
  train(problem(net, arguments()));
  CHECK(net->forward_calls == 2);
  CHECK(net->compiled_calls == 4);
  CHECK(messages.texts() == Texts{"warning: the compiled graph isn't used: a parameter is frozen"});
}

TEST_CASE("a required graph is checked with the parameters that a later phase freezes") {
  const std::string trains = "nothing was thrown";
  const auto fault_with = [&](etude::ParameterRules rules, auto change) {
    Net net;
    net->fault = [layer = (*net->layers)[0]] {
      return std::string(layer->weight.requires_grad() ? "" : "the weight is frozen");
    };
    auto options = problem(net, arguments(CompiledGraphMode::required));
    options.phases = {{"first", {.num_train_epochs = 1}},
                      {"second", {.num_train_epochs = 1, .parameter_groups = std::move(rules)}}};
    change(options);
    auto fault = fault_of<etude::ArgumentError>([&] { train(options); });
    CHECK(net->forward_calls == 0);
    CHECK(net->compiled_calls == (fault == trains ? 6 : 0));
    return fault;
  };
  const std::string is_frozen =
      "phase 'second': compiled_graph is required: must be auto or off, since the weight is frozen";
  const etude::ParameterRules rules{{"*weight", {.frozen = true}}};
  const auto with_several = [](auto& options) { options.optimizers = {{"all", {.parameters = {"*"}}}}; };
  CHECK(fault_with({}, [](auto&) {}) == trains);
  CHECK(fault_with(rules, [](auto&) {}) == is_frozen);
  CHECK(fault_with({}, with_several) == trains);
  CHECK(fault_with(rules, with_several) == is_frozen);
}

TEST_CASE("whether a graph can be used depends on the precision of the training") {
  const auto asked_with = [](auto change) {
    Net net;
    auto args = arguments(CompiledGraphMode::required);
    change(args);
    train(problem(net, args));
    REQUIRE_FALSE(net->asked_for.empty());
    CHECK(net->asked_for.back() == net->autocast);
    return net->asked_for.back();
  };
  CHECK((asked_with([](auto&) {}) == std::nullopt));
  CHECK((asked_with([](auto& args) { args.bf16 = true; }) == torch::kBFloat16));
  CHECK((asked_with([](auto& args) { args.pure_bf16 = true; }) == std::nullopt));
}

/// Refuses batches that don't have four rows.
std::string unless_four(const Tensors& inputs) {
  return inputs[0].size(0) == 4 ? "" : "a batch must have 4 rows";
}

TEST_CASE("forward computes a batch that the graph can't compute, and the trainer says why once") {
  Net net;
  net->refuse = unless_four;
  const Messages messages;
  etude::Trainer<> trainer(problem(net, arguments(), 11));
  trainer.train();
  trainer.train();
  CHECK(net->compiled_calls == 8);
  CHECK(net->forward_calls == 4);
  CHECK(messages.texts() ==
        Texts{"warning: the compiled graph isn't used for loop_compiled_graph_test::NetImpl in step 3, "
              "inputs float32 [3, 5], labels int64 [3]: a batch must have 4 rows"});

  check_close(train(problem(Net(), arguments(CompiledGraphMode::off), 11)), [&] {
    Net again;
    again->refuse = unless_four;
    return train(problem(again, arguments(), 11));
  }());
}

TEST_CASE("different reasons for refusing batches are reported, but at most five") {
  Net net;
  int batches = 0;
  net->refuse = [&](const Tensors&) { return fmt::format("batch {} is wrong", ++batches); };
  const Messages messages;
  train(problem(net, arguments(), 40));
  CHECK(net->forward_calls == 20);
  REQUIRE(messages.texts().size() == 5);
  for (int i = 0; i < 4; ++i)
    CHECK(messages.texts()[static_cast<std::size_t>(i)].ends_with(fmt::format(": batch {} is wrong", i + 1)));
  CHECK(messages.texts()[4].ends_with(": batch 5 is wrong (further reasons won't be reported)"));
}

TEST_CASE("a batch that a required graph can't compute is an error that names it") {
  Net net;
  net->refuse = unless_four;
  etude::Trainer<> trainer(problem(net, arguments(CompiledGraphMode::required), 11));
  CHECK(fault_of<etude::DataError>([&] { trainer.train(); }) ==
        "compiled_graph is required, but can't be used for loop_compiled_graph_test::NetImpl in step 3, "
        "inputs float32 [3, 5], labels "
        "int64 [3]: a batch must have 4 rows");
  CHECK(trainer.state().global_step == 2);
  CHECK(net->forward_calls == 0);
}

TEST_CASE("an error of LibTorch in the graph names the graph and the batch") {
  Net net;
  net->refuse = [](const Tensors& inputs) -> std::string {
    static_cast<void>(inputs[0].view({7}));
    return "";
  };
  const auto fault = fault_of<std::exception>([&] { train(problem(net, arguments())); });
  CHECK(contains(fault, "NetImpl in step 1, inputs float32 [4, 5], labels int64 [4]"));
  CHECK(contains(fault, "in the compiled graph"));
}

TEST_CASE("the graph is no longer used once a callback that may replace the loss is added") {
  struct AddsAfterStep2 {
    std::function<void()> add = {};
    void on(const etude::StepEnd& e) {
      if (e.state.global_step == 2) add();
    }
  };
  const auto run = [](Net& net, CompiledGraphMode mode) {
    using Trainer = etude::Trainer<AddsAfterStep2, etude::RuntimeCallbacks>;
    Trainer* running = nullptr;
    Trainer trainer(problem(net, arguments(mode)), AddsAfterStep2{[&] { running->add_callback(Doubles{}); }},
                    etude::RuntimeCallbacks{});
    running = &trainer;
    trainer.train();
  };
  Net net;
  const Messages messages;
  run(net, CompiledGraphMode::automatic);
  CHECK(net->compiled_calls == 2);
  CHECK(net->forward_calls == 4);
  CHECK(messages.texts() ==
        Texts{"warning: the compiled graph isn't used for loop_compiled_graph_test::NetImpl in step 3, "
              "inputs float32 [4, 5], labels "
              "int64 [4]: Doubles may replace the loss in BackwardBegin"});
  Net strict;
  CHECK(contains(fault_of<etude::DataError>([&] { run(strict, CompiledGraphMode::required); }),
                 "in step 3, inputs float32 [4, 5], labels int64 [4]: Doubles may replace the loss"));
}

TEST_CASE("the model of an earlier training isn't kept when model_init has made another") {
  struct AtPlan {
    std::function<void()> check = {};
    void on(const etude::AccumulationPlanned&) { check(); }
  };
  std::vector<std::weak_ptr<NetImpl>> made;
  auto options = problem(Net(), arguments(CompiledGraphMode::required));
  options.model = {};
  options.model_init = [&] {
    const Net net;
    made.emplace_back(net.ptr());
    return net;
  };
  std::vector<bool> released;
  etude::Trainer<AtPlan> trainer(options, AtPlan{[&] { released.push_back(made.front().expired()); }});
  trainer.train();
  CHECK(made.front().lock()->compiled_calls == 6);
  released.clear();
  trainer.train();
  CHECK(made.size() == 2);
  REQUIRE_FALSE(released.empty());
  CHECK(released.front());  // before the new optimizer is made
  CHECK(made.back().lock()->compiled_calls == 6);
}

TEST_CASE("with accumulation and clipping, the graph and forward give the same weights") {
  check_as_forward(
      [](const Net& net, CompiledGraphMode mode) {
        auto args = arguments(mode);
        args.per_device_train_batch_size = 2;
        args.gradient_accumulation_steps = 3;
        args.max_grad_norm = 0.05;
        return problem(net, args);
      },
      12);
}

/// Accumulates `group` batches of two examples, in order. Some of the 12 have no labels: the whole second
/// batch, and half of the third.
etude::TrainerOptions with_ignored_labels(const Net& net, CompiledGraphMode mode, std::int64_t group) {
  auto args = arguments(mode);
  args.per_device_train_batch_size = 2;
  args.gradient_accumulation_steps = group;
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  auto options = problem(net, args);
  auto [points, labels] = toy::sines::rows(0, 12);
  labels.index_put_({torch::tensor({2, 3, 5})}, -100);
  options.train_dataset = {points, labels};
  return options;
}

TEST_CASE("accumulated batches count by their labels; forward computes one without labels, silently") {
  Net net;
  const Messages messages;
  const auto compiled = train(with_ignored_labels(net, CompiledGraphMode::required, 3));
  CHECK(net->compiled_calls == 10);
  CHECK(net->forward_calls == 2);
  CHECK(messages.texts() == Texts{});
  check_close(compiled, train(with_ignored_labels(Net(), CompiledGraphMode::off, 3)));
}

TEST_CASE("several optimizers that share a loss, and one that evaluates it several times, use the graph") {
  check_as_forward(
      [](const Net& net, CompiledGraphMode mode) {
        auto options = problem(net, arguments(mode));
        options.optimizers = {{"weights", {.parameters = {"*weight"}, .learning_rate = 0.02}},
                              {"biases", {.parameters = {"*bias"}, .optim = etude::OptimizerNames::sgd}}};
        return options;
      },
      6);
  Net net(0);
  const auto by_lbfgs = [](const Net& model, CompiledGraphMode mode) {
    auto options = problem(model, arguments(mode));
    options.args.max_grad_norm = 0;
    options.args.weight_decay = 0;
    options.optimizer = std::make_shared<torch::optim::LBFGS>(model->parameters(),
                                                              torch::optim::LBFGSOptions(0.1).max_iter(4));
    return train(options);
  };
  const auto compiled = by_lbfgs(net, CompiledGraphMode::required);
  CHECK(net->compiled_calls > 6);
  CHECK(net->forward_calls == 0);
  check_close(compiled, by_lbfgs(Net(0), CompiledGraphMode::off));
}

TEST_CASE("the graph runs under autocast with bf16 and fp16, and gets bfloat16 inputs with pure_bf16") {
  const auto dtypes = [](auto change) {
    Net net;
    check_as_forward(
        [&](const Net& model, CompiledGraphMode mode) {
          auto args = arguments(mode);
          change(args);
          if (mode == CompiledGraphMode::required) net = model;
          return problem(model, args);
        },
        6, 0.02);
    return std::pair(net->autocast, net->dtype.value());
  };
  using Dtypes = std::pair<std::optional<torch::ScalarType>, torch::ScalarType>;
  CHECK((dtypes([](auto&) {}) == Dtypes(std::nullopt, torch::kFloat)));
  CHECK((dtypes([](auto& args) { args.bf16 = true; }) == Dtypes(torch::kBFloat16, torch::kFloat)));
  CHECK((dtypes([](auto& args) { args.pure_bf16 = true; }) == Dtypes(std::nullopt, torch::kBFloat16)));
  if (!etude::computes_in_float16(torch::kCPU)) return;
  CHECK((dtypes([](auto& args) { args.fp16 = true; }) == Dtypes(torch::kHalf, torch::kFloat)));
}

TEST_CASE("auto_microbatching gives the graph parts that fit into memory") {
  check_as_forward(
      [](const Net& net, CompiledGraphMode mode) {
        auto args = arguments(mode);
        args.auto_microbatching = true;
        return problem(net, args);
      },
      1 + 2 * 6, 1e-5,
      [] {
        Net net(0);
        net->most_rows = 3;
        return net;
      });
}

TEST_CASE("auto_find_batch_size makes batches smaller until the graph has memory for them") {
  Net net;
  net->most_rows = 3;
  auto args = arguments(CompiledGraphMode::required);
  args.auto_find_batch_size = true;
  args.log_level = etude::LogLevel::error;
  train(problem(net, args));
  CHECK(net->rows == std::vector<std::int64_t>(8, 3));
  CHECK(net->forward_calls == 0);
}

TEST_CASE("step(batch) uses the graph; backward(loss) is an error if the graph is required") {
  const auto [points, labels] = toy::sines::rows(0, 4);
  Net net;
  etude::Trainer<> trainer(problem(net, arguments(CompiledGraphMode::required)));
  for (int i = 0; i < 3; ++i) trainer.step(points, labels);
  trainer.finish();
  CHECK(net->compiled_calls == 3);
  CHECK(net->forward_calls == 0);

  trainer.begin();
  const auto loss = net->forward({points, labels})["loss"];
  CHECK(fault_of<etude::ArgumentError>([&] { trainer.backward(loss); }) ==
        "compiled_graph is required: must be auto or off with backward(loss), whose forward pass the program "
        "makes");
}

TEST_CASE("a search for a learning rate uses forward and restores everything") {
  const auto trained_twice = [](const Net& net, bool searches) {
    etude::Trainer<> trainer(problem(net, arguments(CompiledGraphMode::required)));
    trainer.train();
    if (searches) etude::find_learning_rate(trainer, {.num_it = 5});
    trainer.train();
    return result_of(trainer);
  };
  Net net;
  const auto after_search = trained_twice(net, true);
  CHECK(net->compiled_calls == 12);
  CHECK(net->forward_calls >= 5);
  check_equal(after_search, trained_twice(Net(), false));
}

TEST_CASE("the origin of a loss that isn't finite is looked for in forward") {
  Net net;
  auto args = arguments(CompiledGraphMode::required);
  args.on_non_finite = etude::OnNonFinite::skip;
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  auto options = problem(net, args);
  auto [points, labels] = toy::sines::rows(0, 12);
  points[5][2] = std::numeric_limits<float>::max();  // infinite with noise
  options.train_dataset = {points, labels};
  std::string warnings;
  const auto before =
      etude::set_message_handler([&](std::string_view, std::string_view text) { warnings += text; });
  train(options);
  etude::set_message_handler(before);
  CHECK(contains(warnings,
                 "of step 2 aren't finite: aten::mul made inf in the forward pass, in example 1 of the batch "
                 "(train_dataset[5])"));
  CHECK(net->compiled_calls == 6);
  CHECK(net->forward_calls == 2);
}

TEST_CASE("a training by the graph resumes bit for bit, and can also resume without the graph") {
  const toy::Folder folder;
  auto args = arguments(CompiledGraphMode::required);
  args.log_level = etude::LogLevel::error;  // hides the warning that an argument has changed
  toy::save_to(folder, args, 2);
  const auto whole = train(problem(Net(), args));
  CHECK(whole.losses.size() == 6);
  const auto resumed = [&](CompiledGraphMode mode, int compiled) {
    Net net;
    args.compiled_graph = mode;
    auto result = train(problem(net, args), {.resume_from_checkpoint = std::string(folder / "checkpoint-2")});
    CHECK(net->compiled_calls == compiled);
    CHECK(net->forward_calls == 4 - compiled);
    return result;
  };
  check_equal(resumed(CompiledGraphMode::required, 4), whole);
  check_close(resumed(CompiledGraphMode::off, 0), whole);
}

TEST_CASE("in two processes, the graph gives the weights that one process gives, with padding too") {
  if (toy::launches(2)) return;
  const auto run = [](const Net& net, CompiledGraphMode mode) { return with_ignored_labels(net, mode, 2); };
  Net net(0);
  const auto compiled = train<etude::DistributedDataParallel>(run(net, CompiledGraphMode::required));
  CHECK(net->compiled_calls > 0);
  Net halves(0);  // one process uses the graph, the other forward
  halves->refuse = [](const Tensors&) { return std::string(toy::rank() == 1 ? "it is rank 1" : ""); };
  const auto mixed = train<etude::DistributedDataParallel>(run(halves, CompiledGraphMode::automatic));
  CHECK((halves->compiled_calls == 0) == (toy::rank() == 1));
  const auto sharded = train<etude::ShardedDataParallel<2>>(run(Net(0), CompiledGraphMode::required));
  const auto expected = train<etude::DistributedDataParallel>(run(Net(0), CompiledGraphMode::off));
  const toy::Alone alone;
  auto one = run(Net(0), CompiledGraphMode::off);
  one.args.per_device_train_batch_size = 4;
  const auto whole = train(one);
  for (const auto& result : {compiled, mixed, sharded, expected}) {
    // Losses and the counting buffer are left out: each process has those of its own examples.
    toy::sines::check_close({result.state[0], result.state[1]}, {whole.state[0], whole.state[1]});
  }
}

TEST_CASE("in two processes, a batch that a required graph can't compute in one ends the training in both") {
  if (!toy::is_rank()) {
    toy::Processes processes(2, doctest::getContextOptions()->currentTest->m_name);
    CHECK(processes.ends() == Texts{"exit 0", "exit 0"});
    return;
  }
  Net net;
  net->refuse = [calls = 0](const Tensors&) mutable {
    return std::string(++calls == 2 && toy::rank() == 1 ? "it is the second" : "");
  };
  auto options = problem(net, arguments(CompiledGraphMode::required));
  options.args.per_device_train_batch_size = 2;
  const auto fault = fault_of<std::exception>([&] { train<etude::DistributedDataParallel>(options); });
  CHECK(contains(fault, "it is the second"));
}

TEST_CASE("in two processes, a required graph that one of them can't use ends the training in both") {
  if (!toy::is_rank()) {
    toy::Processes processes(2, doctest::getContextOptions()->currentTest->m_name);
    CHECK(processes.ends() == Texts{"exit 0", "exit 0"});
    return;
  }
  Net net;
  if (toy::rank() == 1) net->fault = [] { return "this processor lacks something"; };
  const auto fault = fault_of<std::exception>(
      [&] { train<etude::DistributedDataParallel>(problem(net, arguments(CompiledGraphMode::required))); });
  CHECK(contains(fault, "this processor lacks something"));
  CHECK(net->compiled_calls == 0);
}

TEST_CASE("ShardedDataParallel<3>, which keeps no whole weights, can't use a graph") {
  if (toy::launches(2)) return;
  using Sharded = etude::Trainer<etude::ShardedDataParallel<3>>;
  const std::string reason = "ShardedDataParallel<3> divides the weights among the processes";
  Net net;
  const Messages messages;
  auto options = problem(net, arguments());
  options.args.log_level_replica = etude::LogLevel::warning;
  Sharded(options).train();
  CHECK(net->compiled_calls == 0);
  CHECK(net->forward_calls > 0);
  CHECK(messages.texts() ==
        Texts{fmt::format("warning: rank {}: the compiled graph isn't used: {}", toy::rank(), reason)});
  options.args.compiled_graph = CompiledGraphMode::required;
  CHECK(contains(fault_of<std::exception>([&] { Sharded(options).train(); }), reason));
}

}  // namespace loop_compiled_graph_test
