/// Measures the cost of timing by activity, of `on_non_finite` and of the report page, for a small step:
/// `observation_bench [--json FILE] [ROUNDS]`. Timing can't be turned off, so a training is compared with one
/// that reads the clock many times more often.

#include <fmt/format.h>

#include <etude/etude.hpp>

#include "measure.hpp"

namespace {

constexpr std::int64_t batch_size = 8, steps = 500;

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return layers->forward(x); }
  torch::nn::Sequential layers{register_module(
      "layers", torch::nn::Sequential(torch::nn::Linear(64, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64),
                                      torch::nn::ReLU(), torch::nn::Linear(64, 10)))};
};
TORCH_MODULE(Net);

/// Switches activities of a second clock, `times` times as often as a step does.
struct MoreSwitches {
  static constexpr int in_a_step = 8;
  int times = 0;
  std::shared_ptr<etude::ActivityClock> clock = std::make_shared<etude::ActivityClock>();
  std::shared_ptr<etude::ActivityClock::Run> run = {};

  void on(const etude::TrainBegin& e) {
    run = std::make_shared<etude::ActivityClock::Run>(*clock, e.args, etude::default_file_system(), true);
  }
  void on(const etude::StepEnd&) {
    for (int i = 0; i < times * in_a_step / 2; ++i)
      const etude::ActivityClock::Scope scope(*clock, etude::TimedActivity::callbacks);
  }
  void on(const etude::TrainEnd&) { run.reset(); }
};

etude::TrainingArguments arguments() {
  return {.output_dir = "/tmp/etude_observation_bench",
          .per_device_train_batch_size = batch_size,
          .max_steps = steps,
          .save_strategy = etude::SaveStrategy::no,
          .logging_strategy = etude::IntervalStrategy::no,
          .log_level = etude::LogLevel::critical,
          .disable_tqdm = true,
          .use_cpu = true};
}

double training(const etude::Dataset& data, int times, etude::OnNonFinite on_non_finite,
                const std::optional<std::string>& trace = {}) {
  auto args = arguments();
  args.on_non_finite = on_non_finite;
  args.trace_file = trace;
  etude::Trainer<etude::NoDefaultCallbacks, MoreSwitches> trainer(
      {.model = Net(), .args = args, .loss = torch::nn::CrossEntropyLoss(), .train_dataset = data},
      MoreSwitches{.times = times});
  return bench::seconds([&] { trainer.train(); });
}

/// A training that logs at every step.
template <class... Callbacks>
double logged(const etude::Dataset& data) {
  auto args = arguments();
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  etude::Trainer<etude::NoDefaultCallbacks, etude::DefaultFlowCallback, Callbacks...> trainer(
      {.model = Net(), .args = args, .loss = torch::nn::CrossEntropyLoss(), .train_dataset = data});
  return bench::seconds([&] { trainer.train(); });
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  bench::Rounds rounds(argc, argv, 15);
  const etude::Dataset data(torch::randn({steps * batch_size, 64}), torch::randint(10, {steps * batch_size}));
  using enum etude::OnNonFinite;
  constexpr int times = 50;
  std::vector<double> costs;
  double plain = 0;
  rounds.row("the clock, 64-64-64-10 with batches of 8", "steps", steps,
             {{"a training", [&] { return plain = training(data, 0, ignore); }},
              {fmt::format("one that reads the clock {} times as often", times + 1),
               [&] {
                 const double more = training(data, times, ignore);
                 costs.push_back((more / plain - 1) / times);
                 return more;
               }},
              {"with trace_file", [&] { return training(data, 0, ignore, "trace.json"); }}});
  fmt::print("- so the clock takes {:.3f} % of a step\n", 100 * bench::median(costs));
  rounds.row("on_non_finite, 64-64-64-10 with batches of 8", "steps", steps,
             {{"ignore", [&] { return training(data, 0, ignore); }},
              {"stop", [&] { return training(data, 0, stop); }},
              {"restore", [&] { return training(data, 0, restore); }}});
  rounds.row("a log at each step, 64-64-64-10 with batches of 8", "steps", steps,
             {{"without a page", [&] { return logged(data); }},
              {"with ReportCallback", [&] { return logged<etude::ReportCallback>(data); }}});
}
