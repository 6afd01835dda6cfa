#include <doctest/doctest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/interrupting.hpp"
#include "common/logged.hpp"
#include "common/printed.hpp"
#include "common/silence.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/loss_spike.hpp"
#include "etude/callbacks/model_ema.hpp"
#include "etude/callbacks/run_history.hpp"
#include "etude/callbacks/terminate_on_nan.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/trainer.hpp"

namespace loop_precision_test {

using etude::IntervalStrategy;

constexpr auto bfloat16 = torch::kBFloat16;

using Types = std::vector<std::string>;
std::string type_of(const torch::Tensor& tensor) { return c10::toString(tensor.scalar_type()); }

struct NetImpl : torch::nn::Module {
  NetImpl() {
    torch::manual_seed(1);
    first = register_module("first", torch::nn::Linear(8, 16));
    second = register_module("second", torch::nn::Linear(16, 4));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto hidden = first(x);
    types.push_back(type_of(hidden));
    return second(torch::relu(hidden));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  Types types;
};
TORCH_MODULE(Net);

torch::Tensor inputs() { return torch::linspace(-1, 2, 48).sin().reshape({6, 8}); }
torch::Tensor targets() { return torch::linspace(0, 3, 24).cos().reshape({6, 4}); }

std::vector<torch::Tensor> copies_of(const std::vector<torch::Tensor>& weights) {
  std::vector<torch::Tensor> copies;
  for (const auto& each : weights) copies.push_back(each.detach().clone().requires_grad_());
  return copies;
}

/// The largest difference between two elements.
double distance(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  return largest;
}

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

// The same network with each cast written out, as torch.autocast makes them: products in the lower type, the
// rest in the type of its input, the loss in float32.
torch::Tensor loss_by_hand(const std::vector<torch::Tensor>& weights, const torch::Tensor& x,
                           const torch::Tensor& y, torch::ScalarType type = bfloat16) {
  const auto linear = [&](const torch::Tensor& input, std::size_t i) {
    return torch::addmm(weights[i + 1].to(type), input.to(type), weights[i].t().to(type));
  };
  return torch::mse_loss(linear(torch::relu(linear(x, 0)), 2).to(torch::kFloat), y);
}

TEST_CASE("training in bf16 equals a loop with each cast written out") {
  Net net;
  auto weights = copies_of(net->parameters());
  auto options = problem(net, true);
  options.loss = torch::nn::MSELoss();
  options.args.learning_rate = 0.5;
  options.args.num_train_epochs = 60;
  const auto x = inputs(), y = targets();
  etude::Trainer trainer(options);
  trainer.train();
  auto in_float32 = copies_of(weights);
  for (int step = 0; step < 60; ++step)
    for (auto& [each, type] : {std::pair(&weights, bfloat16), std::pair(&in_float32, torch::kFloat)}) {
      const auto gradients = torch::autograd::grad({loss_by_hand(*each, x, y, type)}, *each);
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < each->size(); ++i) (*each)[i].sub_(gradients[i], 0.5);
    }
  const auto trained = net->parameters();
  CHECK(distance(weights, in_float32) > 1e-3);
  CHECK(distance(trained, in_float32) > 1e-3);
  // In older LibTorch, the rounding of products depends on strides.
  CHECK(distance(trained, weights) < (etude::computes_in_float16(torch::kCPU) ? 1e-5 : 0.02));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    CAPTURE(i);
    CHECK(type_of(trained[i]) == "Float");
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

TEST_CASE("the losses of a thousand steps in bf16 are within 1 % of those in float32") {
  const auto losses = [](bool bf16) {
    auto options = problem(Net(), bf16);
    options.args.optim = etude::OptimizerNames::adamw_torch_fused;
    options.args.learning_rate = 1e-3;
    options.args.per_device_train_batch_size = 8;
    options.args.max_steps = 1000;
    options.args.logging_strategy = IntervalStrategy::steps;
    options.args.logging_steps = 50;
    const auto x = torch::arange(256 * 8).mul(0.37).sin().reshape({256, 8});
    options.train_dataset = {
        x, torch::tanh(x.slice(1, 0, 4) * 2 - x.slice(1, 4, 8)) + 0.2 * (x * 9).slice(1, 0, 4).cos()};
    options.loss = torch::nn::MSELoss();
    etude::Trainer<etude::NoDefaultCallbacks, etude::DefaultFlowCallback> trainer(options);
    trainer.train();
    return toy::logged(trainer.state(), "loss");
  };
  const auto in_float32 = losses(false), in_bfloat16 = losses(true);
  REQUIRE(in_float32.size() == 20);
  CHECK(in_float32.back() < 0.5 * in_float32.front());
  CHECK(in_bfloat16 != in_float32);
  for (std::size_t i = 0; i < in_float32.size(); ++i) {
    CAPTURE(i);
    CHECK(in_bfloat16[i] == doctest::Approx(in_float32[i]).epsilon(0.01));
  }
}

/// Whether the tests of fp16 can run.
bool has_float16() {
  const bool has = etude::computes_in_float16(torch::kCPU);
  if (!has) {
    auto options = problem(Net(), false);
    options.args.fp16 = true;
    CHECK(toy::fault_of<etude::Error>([&] {
            etude::Trainer<> trainer(options);
          }).starts_with("fp16 is true: must be false on the CPU"));
  }
  return has;
}

/// A training whose first gradients overflow with the initial scale of the loss.
etude::TrainerOptions overflowing(const Net& net) {
  auto options = problem(net, false);
  options.args.fp16 = true;
  options.args.learning_rate = 1e-3;
  options.args.lr_scheduler_type = etude::SchedulerType::linear;
  options.args.num_train_epochs = 40;
  options.args.logging_strategy = IntervalStrategy::epoch;
  options.train_dataset = {inputs(), targets() * 30};
  options.loss = torch::nn::MSELoss();
  return options;
}

template <class Trainer>
etude::TrainOutput train(Trainer& trainer, const etude::TrainOptions& options = {}) {
  const toy::Silence silence;
  return trainer.train(options);
}

bool all_finite(const std::vector<torch::Tensor>& tensors) {
  return std::ranges::all_of(
      tensors, [](const torch::Tensor& each) { return torch::isfinite(each).all().item<bool>(); });
}

TEST_CASE("training in fp16 equals a loop with each cast, the scale and the skipped updates written out") {
  if (!has_float16()) return;
  Net net;
  auto weights = copies_of(net->parameters());
  const auto options = overflowing(net);
  etude::Trainer<toy::Recorder> trainer(options);
  const auto output = train(trainer);

  const auto x = inputs(), y = targets() * 30;
  double scale = 65536;
  int updates = 0, skipped = 0;
  for (int epoch = 0; epoch < 40; ++epoch) {
    auto gradients = torch::autograd::grad({loss_by_hand(weights, x, y, torch::kHalf) * scale}, weights);
    if (!all_finite(gradients)) {
      scale /= 2;
      ++skipped;
      continue;
    }
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i].sub_(gradients[i] / scale, 1e-3 * (1 - updates / 40.0));
    ++updates;
  }
  CHECK(skipped >= 2);
  CHECK(updates > 20);
  CHECK(output.global_step == updates);
  CHECK(trainer.state().max_steps == updates);
  CHECK(output.stop_reason.empty());
  CHECK(distance(net->parameters(), weights) < 1e-4);
  CHECK(output.metrics.at("skipped_steps") == skipped);
  CHECK(toy::logged(trainer.state(), "loss_scale").back() == scale);
  const auto& recorder = trainer.callback<toy::Recorder>();
  CHECK(recorder.count("StepBegin") == 40);
  CHECK(recorder.count("StepSkipped") == skipped);
  for (const auto* each : {"GradientsComplete", "OptimizerStep", "SchedulerStep", "StepEnd"})
    CHECK(recorder.count(each) == updates);
}

TEST_CASE("with max_steps, skipped updates are made up for, in further epochs") {
  if (!has_float16()) return;
  auto options = overflowing(Net());
  options.args.max_steps = 10;
  etude::Trainer<toy::Recorder> trainer(options);
  const auto output = train(trainer);
  CHECK(output.global_step == 10);
  CHECK(output.stop_reason.empty());
  const auto skipped = trainer.callback<toy::Recorder>().count("StepSkipped");
  CHECK(skipped >= 2);
  CHECK(trainer.callback<toy::Recorder>().count("EpochBegin") == 10 + skipped);
}

TEST_CASE("training is resumed to the bit in each precision, with the scaler, after skipped updates") {
  for (const auto* precision : {"float32", "bf16", "fp16"}) {
    if (precision == std::string("fp16") && !has_float16()) continue;
    CAPTURE(precision);
    const toy::Folder folder;
    Net net;
    auto options = overflowing(net);
    options.args.fp16 = precision == std::string("fp16");
    options.args.bf16 = precision == std::string("bf16");
    toy::save_to(folder, options.args, 6);
    etude::Trainer<> whole(options);
    train(whole);
    Net other;
    options.model = other;
    etude::Trainer<> resumed(options);
    train(resumed, {.resume_from_checkpoint = folder / "checkpoint-12"});
    CHECK(distance(net->parameters(), other->parameters()) == 0);
    CHECK(resumed.state().global_step == whole.state().global_step);
    CHECK(toy::logged(resumed.state(), "skipped_steps") == toy::logged(whole.state(), "skipped_steps"));
    CHECK(toy::logged(resumed.state(), "loss_scale") == toy::logged(whole.state(), "loss_scale"));
    CHECK(toy::logged(resumed.state(), "learning_rate") == toy::logged(whole.state(), "learning_rate"));
  }
}

TEST_CASE("half of an update continues in fp16 to the bit, and in float32 without its scale") {
  if (!has_float16()) return;
  const toy::OwnHandler handler;
  const auto run = [](const std::string& folder, bool fp16, std::int64_t interrupted, bool resumes) {
    Net net;
    auto options = overflowing(net);
    options.args.fp16 = fp16;
    options.args.per_device_train_batch_size = 2;
    options.args.gradient_accumulation_steps = 3;
    options.args.train_sampling_strategy = etude::SamplingStrategy::sequential;
    toy::save_to(folder, options.args, 1000);
    options.args.log_level = etude::LogLevel::warning;
    options.args.logging_strategy = IntervalStrategy::no;
    etude::Trainer trainer(options, toy::Interrupting{interrupted});
    std::string text;
    if (interrupted >= 0)
      CHECK_THROWS_AS(toy::printed([&] { trainer.train(); }, STDERR_FILENO), etude::Interrupted);
    else
      text = toy::printed([&] { trainer.train({.resume_from_checkpoint = resumes}); }, STDERR_FILENO);
    return std::pair(copies_of(net->parameters()), text);
  };
  const toy::Folder folder, untouched, in_float32;
  const auto whole = run(untouched, true, -1, false).first;
  run(folder, true, 4, false);
  std::filesystem::copy(std::string(folder), std::string(in_float32),
                        std::filesystem::copy_options::recursive);
  const auto [resumed, text] = run(folder, true, -1, true);
  CHECK(distance(resumed, whole) == 0);
  const auto [other, warning] = run(in_float32, false, -1, true);
  CHECK(distance(other, whole) < 0.1);  // a gradient that is still scaled would make it thousands
  CHECK(warning.find("with another argument: fp16: true -> false") != warning.npos);
}

TEST_CASE("TerminateOnNaN and LossSpike take a skipped update for neither") {
  if (!has_float16()) return;
  using Trainer =
      etude::Trainer<etude::TerminateOnNaNCallback, etude::LossSpikeCallback, etude::RunHistoryCallback>;
  auto options = overflowing(Net());
  options.args.max_steps = 20;
  Trainer trainer(options,
                  etude::LossSpikeCallback{
                      .action = etude::LossSpikeAction::stop, .min_losses = 4, .check_every_n_steps = 4});
  const auto output = train(trainer);
  CHECK(output.metrics.at("skipped_steps") >= 2);
  CHECK(output.global_step == 20);
  CHECK(!trainer.callback<etude::TerminateOnNaNCallback>().state.triggered);
  CHECK(trainer.callback<etude::LossSpikeCallback>().state.spikes.empty());
  CHECK(trainer.callback<etude::LossSpikeCallback>().state.losses.size() == 20);
}

TEST_CASE("gradients that are never finite end the training with the reason") {
  if (!has_float16()) return;
  auto options = overflowing(Net());
  options.args.num_train_epochs = 1000;
  options.loss = [](const torch::Tensor& output, const torch::Tensor&) { return output.sum() * INFINITY; };
  Net net;
  options.model = net;
  const auto before = copies_of(net->parameters());
  etude::Trainer<> trainer(options);
  const auto output = train(trainer);
  CHECK(output.global_step == 0);
  CHECK(output.stop_reason ==
        "with fp16, the gradients after step 0 aren't finite even with a loss scaled by 6.1e-05");
  CHECK(distance(net->parameters(), before) == 0);
}

struct OwnStep final : etude::TrainerBase<OwnStep> {
  using TrainerBase::TrainerBase;
  torch::Tensor training_step(etude::Batch& batch) {
    auto loss = compute_loss(batch).loss;
    scales ? backward(loss) : loss.backward();
    return loss.detach();
  }
  bool scales = true;
};

TEST_CASE("a training_step of one's own scales its loss by the trainer's backward, or is told to") {
  if (!has_float16()) return;
  const auto options = overflowing(Net());
  OwnStep trainer(options);
  CHECK(train(trainer).metrics.contains("skipped_steps"));
  trainer.scales = false;
  CHECK(toy::fault_of<etude::Error>([&] { train(trainer); }) ==
        "fp16 is true, but training_step hasn't scaled the loss: it must call the trainer's backward(loss) "
        "instead of loss.backward()");
}

TEST_CASE("an evaluation with converted weights predicts float32, and leaves the weights to the bit") {
  for (const bool bf16 : {true, false}) {
    if (!bf16 && !has_float16()) continue;
    CAPTURE(bf16);
    Net net;
    auto options = problem(net, false);
    options.loss = torch::nn::MSELoss();
    options.eval_dataset = options.train_dataset;
    (bf16 ? options.args.bf16_full_eval : options.args.fp16_full_eval) = true;
    options.args.eval_strategy = IntervalStrategy::epoch;
    etude::Trainer<etude::ModelEmaCallback> trainer(options);
    trainer.train();
    const std::string inside = bf16 ? "BFloat16" : "Half";
    // In each epoch: a step, an evaluation of the model, and one of ModelEmaCallback's average.
    CHECK(net->types == Types({"Float", inside, inside, "Float", inside, inside, "Float", inside, inside}));
    const auto before = copies_of(net->parameters());
    const auto predicted = trainer.predict({inputs(), targets()}).predictions[0];
    CHECK(type_of(predicted) == "Float");
    const auto exact = net->forward(inputs());
    CHECK(net->types.back() == "Float");
    CHECK(!torch::equal(predicted, exact));
    CHECK((predicted - exact).abs().max().item<double>() < 0.02);
    CHECK(distance(net->parameters(), before) == 0);
  }
}

TEST_CASE("precisions that exclude each other, or that the device lacks, are refused by name") {
  const auto fault = [](auto set) {
    auto options = problem(Net(), false);
    set(options.args);
    return toy::fault_of<etude::Error>([&] { etude::Trainer<> trainer(options); });
  };
  using Args = etude::TrainingArguments;
  CHECK(fault([](Args& args) { args.bf16 = args.fp16 = true; }) ==
        "fp16 is true: must be false, since bf16 is true");
  CHECK(fault([](Args& args) { args.bf16_full_eval = args.fp16_full_eval = true; }) ==
        "fp16_full_eval is true: must be false, since bf16_full_eval is true");
  CHECK(fault([](Args& args) {
          args.tf32 = true;
          args.use_cpu = true;
        }) == "tf32 is true: must be false or unset without a GPU");
  CHECK(fault([](Args& args) { args.tf32 = false; }) == "nothing was thrown");
  CHECK(fault([](Args& args) { args.use_cpu = args.cuda_graph = true; }) ==
        "cuda_graph is true: must be false on the CPU");
  CHECK(fault([](Args& args) { args.use_cpu = args.offload_optimizer = true; }) ==
        "offload_optimizer is true: must be false on the CPU, in whose memory the moments are");
  if (!has_float16()) return;
  auto options = overflowing(Net());
  options.args.optim = etude::OptimizerNames::lbfgs;
  CHECK(toy::fault_of<etude::Error>([&] { etude::Trainer<>(options).train(); }) ==
        "fp16 is true: must be false with LBFGS, which evaluates its loss several times per step");
}

}  // namespace loop_precision_test
