#include "etude/loop/several_optimizers.hpp"

#include <doctest/doctest.h>
#include <torch/optim/sgd.h>

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/printed.hpp"
#include "common/ranks.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/learning_rate_monitor.hpp"
#include "etude/callbacks/loss_spike.hpp"
#include "etude/callbacks/stochastic_weight_averaging.hpp"

namespace loop_several_optimizers_test {

using etude::Batch;
using etude::LossOutput;
using etude::Model;
using Weights = std::vector<torch::Tensor>;

/// A generator of points and a discriminator that tells them from real ones.
struct GanImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor z) { return generator(z); }
  torch::nn::Linear generator{register_module("generator", torch::nn::Linear(2, 2))};
  torch::nn::Sequential discriminator{register_module(
      "discriminator",
      torch::nn::Sequential(torch::nn::Linear(2, 3), torch::nn::Tanh(), torch::nn::Linear(3, 1)))};
};
TORCH_MODULE(Gan);

Gan gan() {
  torch::manual_seed(1);
  return Gan();
}

torch::Tensor generator_loss(GanImpl& net, const torch::Tensor& z) {
  return torch::softplus(-net.discriminator->forward(net.generator(z))).mean();
}
torch::Tensor discriminator_loss(GanImpl& net, const torch::Tensor& z, const torch::Tensor& x) {
  return torch::softplus(-net.discriminator->forward(x)).mean() +
         torch::softplus(net.discriminator->forward(net.generator(z).detach())).mean();
}

constexpr std::int64_t examples = 12;
std::pair<torch::Tensor, torch::Tensor> data() {
  const auto rows = torch::arange(2 * examples).to(torch::kFloat).reshape({examples, 2});
  return {torch::sin(rows), torch::cos(rows * 1.7) + 1};
}

etude::TrainingArguments arguments(std::int64_t batch_size = 2, std::int64_t accumulation = 1) {
  auto args = toy::arguments();
  args.per_device_train_batch_size = batch_size;
  args.gradient_accumulation_steps = accumulation;
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  args.num_train_epochs = 2;
  args.optim = etude::OptimizerNames::adam;
  args.max_grad_norm = 0;
  return args;
}

/// The discriminator has the higher rate, clips, and comes first; the generator joins every `every`th step.
etude::TrainerOptions in_turn(const etude::TrainingArguments& args, std::int64_t every = 1) {
  const auto [z, x] = data();
  return {.model = gan(),
          .args = args,
          .train_dataset = {z, x},
          .optimizers = {
              {"discriminator",
               {.learning_rate = 0.05,
                .max_grad_norm = 0.1,
                .compute_loss = [](Model& model, const Batch& batch, std::optional<double>) -> LossOutput {
                  return {.loss = discriminator_loss(model.as<GanImpl>(), batch.inputs, batch.labels),
                          .outputs = {}};
                }}},
              {"generator",
               {.learning_rate = 0.02,
                .lr_scheduler_type = etude::SchedulerType::linear,
                .compute_loss = [](Model& model, const Batch& batch, std::optional<double>) -> LossOutput {
                  return {.loss = generator_loss(model.as<GanImpl>(), batch.inputs), .outputs = {}};
                },
                .every = every}}}};
}

/// The hand-written loop that `in_turn` must match.
Weights by_hand(std::int64_t batch_size, std::int64_t every = 1) {
  auto net = gan();
  const auto [z, x] = data();
  const auto d = net->discriminator->parameters(), g = net->generator->parameters();
  torch::optim::Adam d_optimizer(d, torch::optim::AdamOptions(0.05)),
      g_optimizer(g, torch::optim::AdamOptions(0.02));
  const auto steps = 2 * examples / batch_size, g_steps = (steps + every - 1) / every;
  std::int64_t step = 0, g_step = 0;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (std::int64_t i = 0; i < examples; i += batch_size, ++step) {
      const auto zs = z.narrow(0, i, batch_size), xs = x.narrow(0, i, batch_size);
      d_optimizer.zero_grad();
      discriminator_loss(*net, zs, xs).backward();
      torch::nn::utils::clip_grad_norm_(d, 0.1);
      d_optimizer.step();
      if (step % every != 0) continue;
      g_optimizer.zero_grad();
      generator_loss(*net, zs).backward();
      const double factor = 1 - static_cast<double>(g_step++) / static_cast<double>(g_steps);
      static_cast<torch::optim::AdamOptions&>(g_optimizer.param_groups()[0].options()).lr(0.02 * factor);
      g_optimizer.step();
    }
  Weights result;
  for (const auto& parameter : net->parameters()) result.push_back(parameter.detach());
  return result;
}

template <class Net>
Weights weights_of(const Net& net) {
  Weights result;
  for (const auto& parameter : net->parameters()) result.push_back(parameter.detach().clone());
  return result;
}
template <class Trainer>
Weights weights(Trainer& trainer) {
  return weights_of(&trainer.model());
}

void check_close(const Weights& a, const Weights& b, double tolerance = 2e-6) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK((a[i] - b[i]).abs().max().item<double>() <= tolerance);
  }
}
void check_equal(const Weights& a, const Weights& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(torch::equal(a[i], b[i]));
}

using Quiet = etude::Without<etude::PrinterCallback>;

/// Makes the steps itself. Uses the generator's points for both losses, as many programs do.
template <class... List>
struct ByHand final : etude::TrainerBase<ByHand<List...>, Quiet, List...> {
  using Base = etude::TrainerBase<ByHand<List...>, Quiet, List...>;
  using Base::Base;
  static constexpr bool automatic_optimization = false;

  torch::Tensor training_step(Batch& batch) {
    auto& net = this->model().template as<GanImpl>();
    const auto loss_of = [](const torch::Tensor& scores, double label) {
      return torch::softplus(label > 0 ? -scores : scores).mean();
    };
    const auto points = net.generator(batch.inputs[0]);
    const auto d_loss = loss_of(net.discriminator->forward(batch.labels[0]), 1) +
                        loss_of(net.discriminator->forward(points.detach()), 0);
    this->optimizer("discriminator").backward(d_loss);
    this->optimizer("discriminator").step();
    const auto g_loss = loss_of(net.discriminator->forward(points), 1);
    this->optimizer("generator").backward(g_loss);
    this->optimizer("generator").step();
    this->log("d_loss", d_loss.detach());
    return (d_loss + g_loss).detach();
  }
};

/// The same options without the losses, for steps by hand.
etude::TrainerOptions for_hand(const etude::TrainingArguments& args) {
  auto options = in_turn(args);
  for (auto& [name, own] : options.optimizers) own.compute_loss = {};
  return options;
}

TEST_CASE("optimizers in turn make the steps of a loop by hand") {
  etude::Trainer<Quiet> trainer(in_turn(arguments()));
  trainer.train();
  CHECK(trainer.state().global_step == 12);
  check_close(weights(trainer), by_hand(2));
}

TEST_CASE("an optimizer may join only in the first of every few steps, with a schedule as long") {
  etude::Trainer<Quiet> trainer(in_turn(arguments(), 5));
  trainer.train();
  CHECK(trainer.state().global_step == 12);
  check_close(weights(trainer), by_hand(2, 5));
}

TEST_CASE("in turn, each optimizer accumulates the micro-batches of a group") {
  etude::Trainer<Quiet> trainer(in_turn(arguments(2, 3)));
  trainer.train();
  CHECK(trainer.state().global_step == 4);
  check_close(weights(trainer), by_hand(6));
}

TEST_CASE("a training_step of one's own makes the steps of a loop by hand") {
  ByHand<> trainer(for_hand(arguments()));
  trainer.train();
  CHECK(trainer.state().global_step == 12);
  check_close(weights(trainer), by_hand(2));
}

TEST_CASE("the events of forward and backward passes, in turn and by hand") {
  etude::Trainer<toy::Recorder> turns(in_turn(arguments(2, 3)));
  turns.train();
  for (const auto* name : {"ForwardBegin", "BackwardBegin", "BackwardEnd"})
    CHECK(turns.callback<toy::Recorder>().count(name) == 24);  // 4 steps of 3 micro-batches, 2 losses
  ByHand<toy::Recorder> hand(for_hand(arguments(2, 3)));
  hand.train();
  const auto& recorder = hand.callback<toy::Recorder>();
  CHECK(recorder.count("ForwardBegin") == 12);
  CHECK(recorder.count("BackwardBegin") + recorder.count("BackwardEnd") == 0);
  CHECK(recorder.count("OptimizerStep") == 8);
  CHECK(recorder.count("StepEnd") == 4);
}

TEST_CASE("the steps that a training_step makes come with the last micro-batch of a group") {
  ByHand<> trainer(for_hand(arguments(2, 3)));
  trainer.train();
  CHECK(trainer.state().global_step == 4);

  auto net = gan();
  const auto [z, x] = data();
  const auto d = net->discriminator->parameters(), g = net->generator->parameters();
  torch::optim::Adam d_optimizer(d, torch::optim::AdamOptions(0.05)),
      g_optimizer(g, torch::optim::AdamOptions(0.02));
  const auto add_gradients = [](const torch::Tensor& loss, const Weights& parameters) {
    const auto gradients = torch::autograd::grad({loss / 3}, parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      auto& gradient = torch::Tensor(parameters[i]).mutable_grad();
      gradient = gradient.defined() ? gradient + gradients[i] : gradients[i];
    }
  };
  for (int step = 0; step < 4; ++step) {
    net->zero_grad();
    for (std::int64_t part = 0; part < 3; ++part) {
      const auto row = (step % 2) * 6 + part * 2;
      const auto zs = z.narrow(0, row, 2), xs = x.narrow(0, row, 2);
      add_gradients(discriminator_loss(*net, zs, xs), d);
      if (part == 2) {
        torch::nn::utils::clip_grad_norm_(d, 0.1);
        d_optimizer.step();
      }
      add_gradients(generator_loss(*net, zs), g);
    }
    static_cast<torch::optim::AdamOptions&>(g_optimizer.param_groups()[0].options())
        .lr(0.02 * (1 - step / 4.0));
    g_optimizer.step();
  }
  Weights expected;
  for (const auto& parameter : net->parameters()) expected.push_back(parameter.detach());
  check_close(weights(trainer), expected);
}

TEST_CASE("several optimizers share one loss") {
  const auto [z, x] = data();
  auto options = in_turn(arguments());
  for (auto& [name, own] : options.optimizers) own.compute_loss = {};
  options.optimizers[1].second.lr_scheduler_type.reset();
  options.optimizers[1].second.parameters = {"generator.weight", "*r.bias"};
  options.compute_loss = [](Model& model, const Batch& batch, std::optional<double>) -> LossOutput {
    return {.loss = discriminator_loss(model.as<GanImpl>(), batch.inputs, batch.labels) +
                    generator_loss(model.as<GanImpl>(), batch.inputs),
            .outputs = {}};
  };
  etude::Trainer<Quiet> trainer(options);
  trainer.train();

  auto net = gan();
  const auto d = net->discriminator->parameters(), g = net->generator->parameters();
  torch::optim::Adam d_optimizer(d, torch::optim::AdamOptions(0.05)),
      g_optimizer(g, torch::optim::AdamOptions(0.02));
  for (int epoch = 0; epoch < 2; ++epoch)
    for (std::int64_t i = 0; i < examples; i += 2) {
      net->zero_grad();
      const auto zs = z.narrow(0, i, 2), xs = x.narrow(0, i, 2);
      (discriminator_loss(*net, zs, xs) + generator_loss(*net, zs)).backward();
      torch::nn::utils::clip_grad_norm_(d, 0.1);
      d_optimizer.step();
      g_optimizer.step();
    }
  Weights expected;
  for (const auto& parameter : net->parameters()) expected.push_back(parameter.detach());
  check_close(weights(trainer), expected);
}

TEST_CASE("the logs have the loss, gradients and rate of each optimizer, and the sum of the losses") {
  auto args = arguments();
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  args.max_steps = 2;
  etude::Trainer<Quiet> trainer(in_turn(args));
  trainer.train();
  const auto& line = trainer.state().log_history.front();
  CHECK(line.at("loss") ==
        doctest::Approx(line.at("discriminator_loss").get<double>() + line.at("generator_loss").get<double>())
            .epsilon(1e-6));
  CHECK(line.at("discriminator_learning_rate") == 0.05);
  CHECK(trainer.state().log_history[1].at("generator_learning_rate") == doctest::Approx(0.01));
  CHECK(line.at("generator_grad_norm") > 0);
  CHECK_FALSE(line.contains("learning_rate"));
  CHECK_FALSE(line.contains("grad_norm"));
  const auto [z, x] = data();
  auto net = gan();
  CHECK(line.at("discriminator_loss") ==
        doctest::Approx(discriminator_loss(*net, z.narrow(0, 0, 2), x.narrow(0, 0, 2)).item<double>()));
}

TEST_CASE("an evaluation has the loss of each optimizer, and their sum") {
  auto options = in_turn(arguments());
  options.eval_dataset = options.train_dataset;
  etude::Trainer<Quiet> trainer(options);
  const auto metrics = trainer.evaluate();
  const auto [z, x] = data();
  auto net = gan();
  CHECK(metrics.at("eval_generator_loss") == doctest::Approx(generator_loss(*net, z).item<double>()));
  CHECK(metrics.at("eval_loss") ==
        doctest::Approx(metrics.at("eval_generator_loss") + metrics.at("eval_discriminator_loss")));
}

struct Names {
  std::vector<std::string> stepped = {};
  void on(const etude::OptimizerStep& e) {
    for (const auto& each : e.optimizers)
      if (each.optimizer.get() == e.optimizer) stepped.push_back(each.name);
  }
};

TEST_CASE("the events of an update have the optimizer that makes it") {
  auto args = arguments();
  args.max_steps = 2;
  etude::Trainer<Quiet, Names> trainer(in_turn(args, 2));
  trainer.train();
  CHECK(trainer.callback<Names>().stepped ==
        std::vector<std::string>{"discriminator", "generator", "discriminator"});
}

TEST_CASE("a training with several optimizers is resumed to the bit") {
  const toy::Folder folder;
  auto args = arguments();
  toy::save_to(folder, args);
  args.save_steps = 5;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 3;
  etude::Trainer<Quiet> whole(in_turn(args, 3));
  whole.train();
  const auto checkpoint = std::string(folder) + "/checkpoint-5";
  CHECK(std::filesystem::exists(checkpoint + "/optimizer.generator.safetensors"));
  CHECK(std::filesystem::exists(checkpoint + "/scheduler.discriminator.json"));
  etude::Trainer<Quiet> resumed(in_turn(args, 3));
  resumed.train({.resume_from_checkpoint = checkpoint});
  check_equal(weights(whole), weights(resumed));
  const auto logs_of = [](const etude::TrainerState& state) {
    std::vector<double> rates;
    for (const auto& line : state.log_history)
      if (line.contains("generator_learning_rate")) rates.push_back(line.at("generator_learning_rate"));
    return rates;
  };
  CHECK(logs_of(whole.state()) == logs_of(resumed.state()));
}

struct StopsAt {
  std::string optimizer;
  void on(const etude::PreOptimizerStep& e) {
    for (const auto& each : e.optimizers)
      if (each.optimizer.get() == e.optimizer && each.name == optimizer) throw etude::StopTraining("enough");
  }
};

TEST_CASE("a stop within a step of several parts comes true after the parts that are made") {
  etude::Trainer<Quiet, StopsAt> first(in_turn(arguments()), StopsAt{"discriminator"});
  CHECK(first.train().global_step == 0);
  check_equal(weights(first), [&] {
    Weights unchanged;
    for (const auto& parameter : gan()->parameters()) unchanged.push_back(parameter.detach());
    return unchanged;
  }());
  etude::Trainer<Quiet, StopsAt> later(in_turn(arguments()), StopsAt{"generator"});
  CHECK(later.train().stop_reason.find("enough") != std::string::npos);
  CHECK(later.state().global_step == 1);
  CHECK(later.optimizer("generator")->state().empty());
  ByHand<StopsAt> second(for_hand(arguments()), StopsAt{"generator"});
  const auto output = second.train();
  CHECK(output.global_step == 1);
  CHECK(output.stop_reason.find("enough") != std::string::npos);
}

struct NoStep final : etude::TrainerBase<NoStep, Quiet> {
  using TrainerBase::TrainerBase;
  static constexpr bool automatic_optimization = false;
  torch::Tensor training_step(Batch& batch) {
    auto loss = generator_loss(model().as<GanImpl>(), batch.inputs);
    optimizer("generator").backward(loss);
    return loss.detach();
  }
};

TEST_CASE("mistakes with several optimizers are errors that name them") {
  const auto fault = [](auto change) {
    auto options = in_turn(arguments());
    change(options);
    return toy::fault_of<etude::ArgumentError>([&] { etude::Trainer<Quiet>(options).train(); });
  };
  using Options = etude::TrainerOptions&;
  CHECK(
      fault([](Options o) { o.optimizers[0].first = "critic"; }) ==
      "the optimizer 'critic' has the pattern 'critic': must name a parameter or module of the model, which "
      "has discriminator, generator");
  CHECK(fault([](Options o) { o.optimizers[1].first = "discriminator"; }) ==
        "optimizers has the name 'discriminator' twice: must be a name for each optimizer");
  CHECK(fault([](Options o) { o.optimizers[0].first = "a/b"; }).starts_with("optimizers has the name 'a/b'"));
  CHECK(fault([](Options o) {
          o.optimizers[0].second.parameters = {"discriminator", "generator.bias"};
        }) ==
        "generator.bias belongs to the optimizers 'discriminator' and 'generator': must be to one of them");
  CHECK(fault([](Options o) { o.optimizers[0].second.compute_loss = {}; }) ==
        "compute_loss is set for 1 of 2 optimizers: must be for all of them, or for none");
  CHECK(fault([](Options o) {
          o.optimizers[0].second.every = 2;
          o.optimizers[1].second.every = 3;
        }) == "every is more than 1 for all optimizers: must be 1 for one of them");
  CHECK(fault([](Options o) { o.optimizers[0].second.every = 0; }).starts_with("every is 0"));
  CHECK(fault([](Options o) { o.loss = torch::nn::MSELoss(); }).starts_with("optimizers and loss"));
  CHECK(fault([](Options o) {
          o.optimizers[0].second.learning_rate = -1;
        }).starts_with("optimizer 'discriminator': learning_rate is -1"));
  CHECK(fault([](Options o) { o.optimizers[0].second.optim = etude::OptimizerNames::lbfgs; }) ==
        "LBFGS evaluates its loss several times per step: can't be used with optimizers that have their own "
        "losses");
  CHECK(fault([](Options o) { o.args.auto_microbatching = true; }) ==
        "auto_microbatching is true: must be false with optimizers that have their own losses");
  CHECK(toy::fault_of<etude::ArgumentError>([] {
          NoStep(for_hand(arguments())).train();
        }).starts_with("training_step made no step of an optimizer"));
  if (etude::computes_in_float16(torch::kCPU)) {
    auto in_float16 = for_hand(arguments());
    in_float16.args.fp16 = true;
    in_float16.args.max_steps = 3;
    CHECK(toy::fault_of<etude::ArgumentError>([&] {
            NoStep(in_float16).train();
          }).starts_with("training_step made no step of an optimizer"));
  }
  ByHand<> trainer(for_hand(arguments()));
  CHECK(toy::fault_of<etude::ArgumentError>([&] { trainer.optimizer("generator"); }) ==
        "there is no optimizer 'generator' before train()");
  trainer.train();
  CHECK(toy::fault_of<etude::ArgumentError>([&] { trainer.optimizer("critic"); }) ==
        "there is no optimizer 'critic': must be one of discriminator, generator");
  CHECK_THROWS_AS(trainer.optimizer("generator").step(), etude::ArgumentError);
}

TEST_CASE("callbacks that read an optimizer read all, or refuse several") {
  auto args = arguments();
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  args.max_steps = 2;
  etude::Trainer<Quiet, etude::LearningRateMonitor> trainer(in_turn(args));
  trainer.train();
  CHECK(trainer.state().log_history[1].at("lr-discriminator/pg1") == 0.05);
  CHECK(trainer.state().log_history[1].at("lr-generator/pg1") == doctest::Approx(0.01));
  CHECK(toy::fault_of<etude::ArgumentError>([] {
          etude::Trainer<Quiet, etude::LossSpikeCallback>(in_turn(arguments())).train();
        }) == "LossSpikeCallback can't be used with several optimizers, of which it restores one");
  CHECK(toy::fault_of<etude::ArgumentError>([] {
          etude::Trainer<Quiet, etude::StochasticWeightAveragingCallback>(in_turn(arguments())).train();
        }).starts_with("StochasticWeightAveragingCallback can't be used with several optimizers"));
}

/// Makes the discriminator's gradients overflow in the second step.
struct Overflows {
  void on(etude::BackwardBegin& e) {
    if (e.state.global_step == 1 && e.optimizer == e.optimizers.begin()->optimizer.get())
      e.loss = e.loss * 1e38;
  }
};

TEST_CASE("with fp16, an optimizer whose gradients overflow is skipped alone") {
  auto args = arguments();
  args.fp16 = true;
  args.max_steps = 3;
  const auto steps_of = [](auto& trainer, const std::string& name) {
    return trainer.optimizer(name)->state().front().second.template item<std::int64_t>();
  };
  etude::Trainer<Quiet, Overflows> trainer(in_turn(args));
  trainer.train();
  CHECK(trainer.state().global_step == 3);
  CHECK(steps_of(trainer, "discriminator") == 2);
  CHECK(steps_of(trainer, "generator") == 3);
}

/// Makes the loss of one optimizer NaN in one step, and copies the weights after each.
struct Poison {
  std::size_t optimizer = 0;
  std::int64_t step = 1;
  std::vector<Weights> after = {};
  int skipped = 0;
  void on(etude::BackwardBegin& e) {
    if (e.state.global_step != step || e.optimizer != e.optimizers[optimizer].optimizer.get()) return;
    e.loss = e.loss * std::nan("");
    step = -1;  // once
  }
  void on(const etude::StepEnd& e) {
    auto& weights = after.emplace_back();
    for (const auto& parameter : e.model.parameters()) weights.push_back(parameter.detach().clone());
  }
  void on(const etude::StepSkipped&) { ++skipped; }
};

TEST_CASE("on_non_finite leaves out the rest of a step, from the optimizer whose gradients aren't finite") {
  auto args = arguments();
  args.max_steps = 4;
  args.on_non_finite = etude::OnNonFinite::skip;
  // The generator's parameters are registered first.
  const auto is_same = [](const Weights& a, const Weights& b, std::size_t from, std::size_t to) {
    return std::equal(a.begin() + static_cast<std::ptrdiff_t>(from),
                      a.begin() + static_cast<std::ptrdiff_t>(to),
                      b.begin() + static_cast<std::ptrdiff_t>(from),
                      [](const auto& x, const auto& y) { return torch::equal(x, y); });
  };
  etude::Trainer<Quiet, Poison> second(in_turn(args), Poison{.optimizer = 1});
  second.train();
  const auto& after = second.template callback<Poison>().after;
  REQUIRE(after.size() == 4);
  CHECK(second.template callback<Poison>().skipped == 0);
  CHECK(is_same(after[0], after[1], 0, 2));
  CHECK_FALSE(is_same(after[0], after[1], 2, 6));
  CHECK_FALSE(is_same(after[1], after[2], 0, 2));

  etude::Trainer<Quiet, Poison> first(in_turn(args), Poison{.optimizer = 0});
  first.train();
  const auto& none = first.template callback<Poison>();
  CHECK(none.skipped == 1);
  CHECK(is_same(none.after[0], none.after[1], 0, 0));

  args.on_non_finite = etude::OnNonFinite::stop;
  etude::Trainer<Quiet, Poison> stops(in_turn(args), Poison{.optimizer = 1});
  const auto output = stops.train();
  CHECK(
      output.stop_reason.starts_with("the gradients of step 2 for the optimizer 'generator' aren't finite"));
  CHECK(output.global_step == 2);  // the discriminator has made its step

  args.on_non_finite = etude::OnNonFinite::restore;
  etude::Trainer<Quiet, Poison> restores(in_turn(args), Poison{.optimizer = 1});
  restores.train();
  check_equal(restores.template callback<Poison>().after[1], weights_of(gan()));
}

TEST_CASE("on_non_finite skips a step that a training_step makes itself") {
  auto args = arguments();
  args.on_non_finite = etude::OnNonFinite::skip;
  args.num_train_epochs = 1;
  auto options = for_hand(args);
  auto [z, x] = data();
  z[5] = std::nan("");
  options.train_dataset = {z, x};
  ByHand<> trainer(options);
  const auto output = trainer.train();
  CHECK(output.global_step == examples / 2 - 1);
  CHECK(output.metrics.at("skipped_steps") == 1);
  for (const auto& weight : weights(trainer)) CHECK(weight.isfinite().all().item<bool>());
}

template <class Processes>
void check_two_processes() {
  etude::Trainer<Processes, Quiet> turns(in_turn(arguments(2, 2), 2));
  turns.train();
  ByHand<Processes> hand(for_hand(arguments(3)));
  hand.train();
  auto bf16 = arguments();
  bf16.bf16 = true;
  etude::Trainer<Processes, Quiet> rounded(in_turn(bf16));
  rounded.train();
  const toy::Alone alone;
  etude::Trainer<Quiet> one(in_turn(arguments(4, 2), 2));
  one.train();
  check_close(weights(turns), weights(one), 1e-5);
  ByHand<> one_hand(for_hand(arguments(6)));
  one_hand.train();
  check_close(weights(hand), weights(one_hand), 1e-5);
  bf16.per_device_train_batch_size = 4;
  etude::Trainer<Quiet> one_rounded(in_turn(bf16));
  one_rounded.train();
  check_close(weights(rounded), weights(one_rounded), 0.01);
}

TEST_CASE("two processes train several optimizers as one does with batches twice as large") {
  if (toy::launches(2)) return;
  check_two_processes<etude::DistributedDataParallel>();
}

TEST_CASE("several optimizers are trained with their states divided among processes") {
  if (toy::launches(2)) return;
  check_two_processes<etude::ShardedDataParallel<1>>();
  check_two_processes<etude::ShardedDataParallel<2>>();
}

TEST_CASE("a rule freezes parameters whichever optimizer holds them, and those that none holds") {
  const auto train = [](const Gan& net, bool as_argument, std::shared_ptr<torch::optim::Optimizer> last) {
    const auto [z, x] = data();
    auto args = arguments();
    args.log_level = etude::LogLevel::warning;
    etude::TrainerOptions options{
        .model = net,
        .args = args,
        .compute_loss = [](Model& model, const Batch& batch, std::optional<double>) -> LossOutput {
          return {.loss = discriminator_loss(model.as<GanImpl>(), batch.inputs, batch.labels) +
                          generator_loss(model.as<GanImpl>(), batch.inputs),
                  .outputs = {}};
        },
        .train_dataset = {z, x},
        .optimizers = {{"generator", {}},
                       {"first", {.parameters = {last ? "discriminator.0.weight" : "discriminator.0"}}}}};
    if (last) options.optimizers.push_back({"last", {.optimizer = std::move(last)}});
    if (as_argument)
      options.args.parameter_groups = "discriminator.2: frozen=true; generator.bias: frozen=true";
    else
      options.parameter_groups = {{"discriminator.2", {.frozen = true}},
                                  {"generator.bias", {.frozen = true}}};
    return toy::printed([&] { etude::Trainer<Quiet>(options).train(); }, STDERR_FILENO);
  };
  for (const bool as_argument : {false, true})
    for (const bool is_held : {false, true}) {
      CAPTURE(is_held);
      const auto net = gan(), before = gan();
      auto last = net->discriminator->ptr(2)->parameters();
      last.push_back(net->discriminator->ptr(0)->named_parameters()["bias"]);
      const auto text =
          train(net, as_argument, is_held ? std::make_shared<torch::optim::SGD>(last, 0.1) : nullptr);
      CHECK(text.find("no optimizer updates") == text.npos);
      const auto now = net->named_parameters(), then = before->named_parameters();
      for (const auto& parameter : now) {
        CAPTURE(parameter.key());
        const bool is_frozen =
            parameter.key().starts_with("discriminator.2") || parameter.key() == "generator.bias";
        CHECK(parameter.value().requires_grad() == !is_frozen);
        CHECK(torch::equal(parameter.value(), then[parameter.key()]) == is_frozen);
      }
    }
}

}  // namespace loop_several_optimizers_test
