/// run.py runs this: `trackers_bench TRACKER LOGS METRICS` trains for LOGS steps, each with a log of METRICS
/// numbers, and prints a line of JSON: the microseconds that a log delays the training (median and 99th
/// percentile), the seconds of training, and the seconds from its first log until the tracker is closed.

#include <fmt/format.h>
#include <torch/torch.h>

#include <chrono>
#include <etude/etude.hpp>
#include <etude/integrations/report_to.hpp>
#include <filesystem>
#include <map>
#include <memory>

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Stalls {
  std::vector<double> microseconds;
  Clock::time_point first, log;
};

/// Precedes the tracker in the list, and creates the log.
struct Before {
  std::shared_ptr<Stalls> stalls;
  std::int64_t metrics = 0;
  void on(etude::Log& e) {
    for (std::int64_t i = 0; i < metrics; ++i)
      e.logs[fmt::format("metric_{}", i)] = static_cast<double>(i) / 7;
    if (stalls->microseconds.empty()) stalls->first = Clock::now();
    stalls->log = Clock::now();
  }
};

/// Follows the tracker in the list.
struct After {
  std::shared_ptr<Stalls> stalls;
  void on(const etude::Log&) { stalls->microseconds.push_back(1e6 * seconds_since(stalls->log)); }
};

template <class Tracker>
void measure(std::int64_t logs, std::int64_t metrics) {
  const auto folder = std::filesystem::current_path() / "output";
  const auto stalls = std::make_shared<Stalls>();
  auto training = 0.0;
  {
    etude::TrainingArguments args;
    args.output_dir = folder;
    args.per_device_train_batch_size = 1;
    args.max_steps = logs;
    args.logging_steps = 1;
    args.save_strategy = etude::SaveStrategy::no;
    args.disable_tqdm = true;
    args.log_level = etude::LogLevel::error;
    etude::Trainer<etude::NoDefaultCallbacks, etude::DefaultFlowCallback, Before, Tracker, After> trainer(
        {.model = torch::nn::Linear(2, 2),
         .args = args,
         .loss = torch::nn::CrossEntropyLoss(),
         .train_dataset = {torch::rand({64, 2}), torch::randint(2, {64})}},
        Before{stalls, metrics}, After{stalls});
    const auto begun = Clock::now();
    trainer.train();
    training = seconds_since(begun);
  }
  const auto whole = seconds_since(stalls->first);
  auto& times = stalls->microseconds;
  std::ranges::sort(times);
  fmt::print(R"({{"median": {}, "p99": {}, "training": {}, "whole": {}, "logs": {}}})"
             "\n",
             times[times.size() / 2], times[times.size() * 99 / 100], training, whole, times.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: trackers_bench TRACKER LOGS METRICS\n");
    return 2;
  }
  const std::map<std::string, void (*)(std::int64_t, std::int64_t)> trackers{
      {"tensorboard", &measure<etude::TensorBoardCallback>},
      {"wandb", &measure<etude::WandbCallback>},
      {"comet_ml", &measure<etude::CometCallback>},
      {"mlflow", &measure<etude::MLflowCallback>}};
  trackers.at(argv[1])(std::stoll(argv[2]), std::stoll(argv[3]));
}
