/// Writes pages of made-up trainings for report.py: `report KIND FOLDER [NUMBER]`.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <numbers>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/base64.hpp"
#include "etude/io/file_system.hpp"
#include "etude/report/picture.hpp"
#include "etude/report/run_recorder.hpp"

namespace {

using Logs = std::vector<std::pair<std::string, double>>;
using etude::detail::RunRecorder;

/// Numbers that look random and are the same everywhere.
double noise(std::int64_t i) {
  const double wave = std::sin(static_cast<double>(i) * 12.9898) * 43758.5453;
  return 2 * (wave - std::floor(wave)) - 1;
}

std::string digit_picture(int number) {
  constexpr std::size_t side = 28;
  std::vector<std::uint8_t> pixels(side * side);
  for (std::size_t y = 0; y < side; ++y)
    for (std::size_t x = 0; x < side; ++x) {
      const double angle = std::atan2(static_cast<double>(y) - 13.5, static_cast<double>(x) - 13.5);
      const double radius = std::hypot(static_cast<double>(y) - 13.5, static_cast<double>(x) - 13.5);
      const double edge = 8 + 2 * std::sin(angle * (2 + number) + number);
      pixels[y * side + x] =
          static_cast<std::uint8_t>(255 * std::exp(-(radius - edge) * (radius - edge) / 3));
    }
  return etude::detail::base64(etude::detail::png_bytes(pixels, side, side, 1, 256));
}

/// A training of a classifier: its loss falls towards `floor`, the faster the larger `rate` is.
RunRecorder training(std::string name, double rate, double floor, std::int64_t steps, std::int64_t logged) {
  RunRecorder recorder;
  auto& run = recorder.run;
  run.id = run.name = std::move(name);
  run.began = 1.8e9;
  run.max_steps = steps;
  run.num_train_epochs = 20;
  run.arguments = {{"output_dir", run.name},
                   {"learning_rate", rate},
                   {"num_train_epochs", 20},
                   {"per_device_train_batch_size", 32},
                   {"weight_decay", 0.01},
                   {"lr_scheduler_type", "cosine"},
                   {"eval_strategy", "epoch"},
                   {"metric_for_best_model", "accuracy"},
                   {"warmup_steps", 0.1},
                   {"seed", 42},
                   {"gradient_accumulation_steps", 1},
                   {"max_grad_norm", 1.0}};
  run.changed = {"output_dir",   "learning_rate",     "num_train_epochs", "per_device_train_batch_size",
                 "weight_decay", "lr_scheduler_type", "eval_strategy",    "metric_for_best_model"};
  run.handlers = {{"TrainBegin", {"Announce", "DefaultFlowCallback", "ReportCallback"}},
                  {"StepEnd", {"DefaultFlowCallback", "ProgressCallback"}},
                  {"Log", {"MemoryMetricsCallback (writes)", "Announce", "ReportCallback"}},
                  {"Evaluate", {"EarlyStoppingCallback"}},
                  {"Stop", {"Announce", "ReportCallback"}},
                  {"TrainEnd", {"ProgressCallback", "ReportCallback"}}};
  run.activities = {"setup",      "data",   "forward", "backward",  "update",
                    "evaluation", "saving", "logging", "callbacks", "other"};
  run.ranks = {{0, {0.4, 3.1, 11.2, 19.8, 4.4, 2.9, 0.8, 0.1, 0.2, 0.3}, 6.1e8, 1.9e9}};
  recorder.mark(etude::ReportMarkKind::began, 0, run.began, "");
  const double per_epoch = static_cast<double>(steps) / 20;
  for (std::int64_t step = 1; step <= logged; ++step) {
    const double part = static_cast<double>(step) / static_cast<double>(steps), x = static_cast<double>(step);
    const double warm = std::min(part / 0.1, 1.0);
    const double lr =
        rate * (part < 0.1 ? warm : 0.5 * (1 + std::cos(std::numbers::pi * (part - 0.1) / 0.9)));
    const double loss = floor + 2.3 * std::exp(-x * rate * 6) +
                        0.12 * std::abs(noise(step)) * (0.3 + std::exp(-x * rate * 3));
    recorder.log(step,
                 Logs{{"loss", loss},
                      {"grad_norm", 0.4 + 2 * std::exp(-x * rate * 4) + 0.3 * std::abs(noise(step + 7))},
                      {"learning_rate", lr},
                      {"epoch", x / per_epoch},
                      {"report/elapsed", x * 0.043 + 2 * std::floor(x / per_epoch) / 20},
                      {"report/steps_per_second", 23 + 2 * noise(step / 20)},
                      {"report/samples_per_second", 32 * (23 + 2 * noise(step / 20))},
                      {"report/resident_memory", 5.8e8 + 3e7 * std::min(1.0, part * 8)},
                      {"report/device_memory", 1.9e9 * std::min(1.0, 0.6 + part * 9)}});
    if (std::fmod(x, per_epoch) != 0) continue;
    const double epoch = x / per_epoch;
    const double eval_loss =
        floor + 0.08 + 1.9 * std::exp(-x * rate * 5) + 0.004 * std::max(0.0, epoch - 9) * epoch;
    const double accuracy =
        0.985 - floor * 0.2 - 0.7 * std::exp(-x * rate * 5) - 0.0006 * std::max(0.0, epoch - 12);
    Logs logs{{"eval_loss", eval_loss}, {"eval_accuracy", accuracy}, {"epoch", epoch}};
    for (int i = 0; i < 10; ++i)
      for (int j = 0; j < 10; ++j)
        logs.emplace_back(
            "eval_confusion_" + std::to_string(i) + "_" + std::to_string(j),
            i == j ? std::round(36 * accuracy) : std::round(std::max(0.0, 1.6 * noise(10 * i + j + 5))));
    recorder.log(step, logs);
    if (!run.best_value || accuracy > *run.best_value) run.best_value = accuracy, run.best_step = step;
    run.best_metric = "eval_accuracy";
    recorder.mark(etude::ReportMarkKind::saved, step, run.began + x * 0.043,
                  "output/checkpoint-" + std::to_string(step));
    if (epoch < 3) continue;
    for (int i = 0; i < 6; ++i)
      recorder.add({.step = step,
                    .name = "eval_digit_" + std::to_string(i),
                    .kind = etude::ReportSampleKind::image,
                    .content = digit_picture(i),
                    .caption = "predicted " + std::to_string(i),
                    .is_cut = false},
                   3, 4'000'000);
    recorder.add({.step = step,
                  .name = "eval_story",
                  .kind = etude::ReportSampleKind::text,
                  .content = "Once upon a step the loss was " + std::to_string(eval_loss) +
                             ", and everybody waited for the next.",
                  .caption = "",
                  .is_cut = false},
                 3, 4'000'000);
  }
  run.step = logged;
  run.epoch = static_cast<double>(logged) / per_epoch;
  run.written = run.began + static_cast<double>(logged) * 0.043;
  return recorder;
}

void write(const std::filesystem::path& page, const RunRecorder& recorder) {
  auto& files = etude::default_file_system();
  files.create_directories(page.parent_path());
  etude::write_file(files, page, etude::detail::run_page({recorder.report()}, recorder.run.name));
}

void finish(RunRecorder& recorder) {
  recorder.run.status = etude::RunStatus::finished;
  recorder.log(recorder.run.step, Logs{{"train_runtime", 39.6},
                                       {"train_samples_per_second", 726.4},
                                       {"train_steps_per_second", 22.7},
                                       {"train_loss", 0.214},
                                       {"total_flos", 0}});
  recorder.log(recorder.run.step, Logs{{"eval_loss", 0.09}, {"eval_accuracy", 0.97}});
  recorder.mark(etude::ReportMarkKind::ended, recorder.run.step, recorder.run.written, "");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string_view kind = argv[1];
  const std::filesystem::path folder = argv[2];
  auto run = training("digits", 2e-3, 0.03, 900, kind == "running" ? 585 : 900);
  if (kind == "running") {
    run.run.written = static_cast<double>(argc > 3 ? std::stoll(argv[3]) : 0);
  } else if (kind == "finished") {
    finish(run);
    etude::ReportLearningRates curve;
    for (int i = 0; i < 100; ++i) {
      const double rate = std::pow(10.0, -7 + i * 0.07);
      curve.learning_rates.push_back(rate);
      curve.smoothed.push_back(2.3 - 1.7 / (1 + std::pow(2e-3 / rate, 1.4)) +
                               (rate > 0.1 ? 3 * std::pow(rate - 0.1, 1.2) : 0));
      curve.losses.push_back(curve.smoothed.back() + 0.1 * noise(i));
    }
    curve.suggested = 1.6e-3;
    run.run.learning_rates = curve;
  } else if (kind == "failed") {
    run.run.status = etude::RunStatus::failed;
    run.run.reason =
        "DataError: eval_<b>loss</b> isn't finite: </script><script>document.title = 'hacked'</script> (in "
        "TerminateOnNaNCallback, at Log)";
    run.run.name =
        "</title></script><script>document.title = 'hacked'</script><img src=x "
        "onerror=\"document.title='hacked'\">";
    run.log(901,
            Logs{{"loss", std::nan("")}, {"</script><b>name", 1}, {"loss", INFINITY}, {"huge", 1.7e308}});
    run.log(902, Logs{{"loss", 1e30}, {"huge", -1.7e308}, {"</script><b>name", 2}});
    run.mark(etude::ReportMarkKind::stopped, 300, 1.8e9 + 15, "SIGTERM");
    run.mark(etude::ReportMarkKind::resumed, 300, 1.8e9 + 20, "");
    run.mark(etude::ReportMarkKind::failed, 901, 1.8e9 + 39, run.run.reason);
    run.run.ranks.push_back({1, {0.5, 9.1, 11.0, 19.1, 4.4, 2.9, 0.1, 0.1, 0.2, 0.3}, 6.3e8, 1.9e9});
    run.run.world_size = 2;
    run.run.trial_name = "trial-7";
    run.run.trial_params = {{"lr", 2e-3}, {"optim", "<i>adamw</i>"}};
  } else if (kind == "long") {
    RunRecorder steps;
    for (std::int64_t step = 1; step <= 1'000'000; ++step)
      steps.log(step, Logs{{"loss", step == 654'321 ? 9.0 : 1 + 1 / static_cast<double>(step)}});
    steps.log(1, Logs{{"report/resident_memory", 1.289e8}});
    steps.log(1'000'000, Logs{{"report/resident_memory", 1.29e8}});
    steps.run.name = "long";
    steps.run.step = 1'000'000;
    run = steps;
    finish(run);
  } else if (kind == "comparison") {
    std::vector<std::filesystem::path> pages;
    for (const auto& [name, rate, floor] : {std::tuple{"rate-2e-3", 2e-3, 0.03},
                                            {"rate-5e-4", 5e-4, 0.05},
                                            {"rate-8e-3", 8e-3, 0.11},
                                            {"again", 8e-3, 0.11}}) {
      auto each = training(name, rate, floor, 900, 900);
      finish(each);
      write(folder / name / "report.html", each);
      pages.push_back(folder / name);
    }
    etude::write_comparison(folder / "report.html", pages);
    return 0;
  } else {
    return 2;
  }
  write(folder / "report.html", run);
}
