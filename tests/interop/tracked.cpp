// tracked --report_to NAME... [--output_dir ...] [any other argument of a training, and of Tracked below]
// Trains on eight rows in batches of two, and prints the data that trackers should have received: "log STEP
// {...}" for each log, "checkpoint PATH" for each checkpoint, and at the end "finished SECONDS", the time of
// train(). Numbers that aren't finite are the words NaN, Infinity and -Infinity.

#include <fmt/format.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "etude/callbacks/evaluation_samples.hpp"
#include "etude/integrations/report_to.hpp"
#include "etude/metrics/accuracy.hpp"
#include "etude/reflect/json.hpp"
#include "etude/trainer.hpp"

namespace {

struct Tracked {
  ETUDE_STRUCT(Tracked, (bool, odd, "log nan, inf, -inf, and a name that not every tracker takes", false),
               (std::int64_t, extra, "further metrics of each log", 0),
               (std::int64_t, fail_at, "the step at whose end it throws; -1 is none", -1),
               (double, step_seconds, "how long each step takes, at least", 0.0),
               (bool, resume, "go on from the newest checkpoint", false),
               (std::string, trial,
                "it is this trial of a search, whose hyperparameters are learning_rate and width", ""),
               (bool, evaluate_after, "evaluate once more after the training", false),
               (bool, scripted, "train a TorchScript module", false),
               (bool, samples, "log samples with each evaluation", false),
               (std::int64_t, histogram_steps, "TensorBoard's histograms; 0 is none", 0));
};

void report(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

struct Narrator {
  Tracked options = {};

  void on(etude::Log& e) {
    if (options.odd) {
      e.logs["odd_nan"] = std::nan("");
      e.logs["odd_inf"] = std::numeric_limits<double>::infinity();
      e.logs["odd_minus_inf"] = -std::numeric_limits<double>::infinity();
      e.logs["odd(name)"] = 0.5;
    }
    for (std::int64_t i = 0; i < options.extra; ++i)
      e.logs[fmt::format("extra_{}", i)] = static_cast<double>(i);
    nlohmann::ordered_json reported = nlohmann::ordered_json::object();
    for (const auto& [name, value] : e.logs) reported[name] = etude::to_json_value(value);
    report(fmt::format("log {} {}", e.state.global_step, reported.dump()));
  }
  void on(const etude::Save& e) { report("checkpoint " + std::filesystem::absolute(e.checkpoint).string()); }
  void on(const etude::StepEnd& e) {
    if (options.step_seconds > 0)
      std::this_thread::sleep_for(std::chrono::duration<double>(options.step_seconds));
    if (e.state.global_step == options.fail_at) throw std::runtime_error("failed on purpose");
  }
};

/// Samples that depend on the step alone, for the scripts to compare.
std::vector<etude::Sample> samples_of(const etude::Evaluate& e) {
  const auto step = e.state.global_step;
  const auto pixels = (torch::arange(90) + step).to(torch::kByte).reshape({6, 5, 3});
  const auto waves = (torch::arange(10).reshape({2, 5}) - 5).to(torch::kFloat) / 5;
  return {etude::text_sample("story", fmt::format("step {}\n<ü & \"b\">", step)),
          etude::image_sample("cats/first", pixels, "a <cat>"),
          etude::image_sample("grey", pixels.select(2, 0)),
          etude::image_sample("clear", torch::cat({pixels, 255 - pixels.slice(2, 0, 1)}, 2)),
          etude::audio_sample("mew", waves, 8000, "two channels")};
}

struct NetImpl : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(3, 4))},
      second{register_module("second", torch::nn::Linear(4, 2))};
  torch::Tensor forward(const torch::Tensor& rows) { return second(torch::relu(first(rows))); }
};
TORCH_MODULE(Net);

/// The same as a TorchScript module.
torch::jit::Module scripted_net() {
  const auto linear = [](std::int64_t in, std::int64_t out) {
    torch::jit::Module layer("Linear");
    const torch::nn::Linear made(in, out);
    layer.register_parameter("weight", made->weight, /*is_buffer=*/false);
    layer.register_parameter("bias", made->bias, /*is_buffer=*/false);
    layer.define("def forward(self, x):\n  return torch.linear(x, self.weight, self.bias)\n");
    return layer;
  };
  torch::jit::Module net("Net");
  net.register_module("first", linear(3, 4));
  net.register_module("second", linear(4, 2));
  net.define(
      "def forward(self, rows):\n  return self.second.forward(torch.relu(self.first.forward(rows)))\n");
  return net;
}

}  // namespace

int main(int argc, char** argv) {
  etude::TrainingArguments defaults;
  defaults.per_device_train_batch_size = 2;
  defaults.num_train_epochs = 2;
  defaults.logging_steps = 1;
  defaults.save_strategy = etude::SaveStrategy::no;
  defaults.disable_tqdm = true;
  const auto [args, tracked] = etude::parse_arguments(argc, argv, defaults, Tracked());

  torch::manual_seed(1);
  const auto rows = torch::arange(24, torch::kFloat).reshape({8, 3}).sin();
  const auto labels = torch::arange(8) % 2;
  etude::Trainer<Narrator, etude::RuntimeCallbacks> trainer(
      {.model = tracked.scripted ? etude::Model(scripted_net()) : etude::Model(Net()),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = {rows, labels},
       .eval_dataset = {rows, labels},
       .compute_metrics = etude::metrics::accuracy},
      Narrator{tracked});
  if (tracked.samples) trainer.add_callback(etude::EvaluationSamplesCallback{.make = samples_of});
#ifdef ETUDE_TENSORBOARD
  if (tracked.histogram_steps > 0)
    trainer.add_callback(etude::TensorBoardCallback{.histogram_steps = tracked.histogram_steps});
#endif
  const auto handles = etude::add_trackers(trainer);
  const auto begun = std::chrono::steady_clock::now();
  try {
    std::optional<etude::HyperparameterTrial> trial;
    if (!tracked.trial.empty())
      trial = {.name = tracked.trial, .params = {{"learning_rate", args.learning_rate}, {"width", 4}}};
    trainer.train({.resume_from_checkpoint = tracked.resume, .trial = trial});
  } catch (const std::runtime_error& error) {
    report(fmt::format("failed {}", error.what()));
    return 3;
  }
  report(fmt::format("finished {}",
                     std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count()));
  if (tracked.evaluate_after) trainer.evaluate();
}
