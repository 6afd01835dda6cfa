#include "etude/metrics/time_by_activity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "etude/reflect/interval.hpp"

namespace etude::inline v0 {

double TimeByActivity::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

double TimeByActivity::share(TimedActivity activity) const {
  const double all = total();
  return all > 0 ? (*this)[activity] / all : 0;
}

std::string TimeByActivity::table() const {
  std::array<std::size_t, enum_names<TimedActivity>.size()> order{};
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return seconds[i]; });
  std::string text = fmt::format("{:<14} {:>10} {:>7}\n", "activity", "seconds", "%");
  for (const auto i : order)
    if (seconds[i] > 0)
      text += fmt::format("{:<14} {:>10.3f} {:>7.2f}\n", enum_names<TimedActivity>[i], seconds[i],
                          100 * share(static_cast<TimedActivity>(i)));
  return text + fmt::format("{:<14} {:>10.3f} {:>7.2f}\n", "total", total(), total() > 0 ? 100.0 : 0.0);
}

std::vector<std::string> advice(const TimeByActivity& times, const TrainingArguments& args,
                                const AdviceFacts& facts) {
  using enum TimedActivity;
  constexpr double enough_seconds = 10;
  std::vector<std::string> lines;
  if (times.total() < enough_seconds || facts.steps < 1) return lines;
  const auto percent = [&](TimedActivity activity) { return 100 * times.share(activity); };

  if (percent(data) > 20)
    lines.push_back(
        args.dataloader_num_workers == 0
            ? fmt::format("the training waits for its data {:.0f} % of the time, and dataloader_num_workers "
                          "is 0: workers prepare batches while it computes",
                          percent(data))
            : fmt::format("the training waits for its data {:.0f} % of the time: dataloader_num_workers is "
                          "{}, and more may help",
                          percent(data), args.dataloader_num_workers));

  const auto& every = args.logging_steps;
  const bool logs_each_step = args.logging_strategy == IntervalStrategy::steps &&
                              every.unit() == IntervalUnit::steps && every.value() == 1;
  const double of_logs = percent(logging) + percent(callbacks);
  if (logs_each_step && of_logs > 10)
    lines.push_back(
        fmt::format("logs and callbacks take {:.0f} % of the time, and logging_steps is 1: log less often{}",
                    of_logs, facts.on_cpu ? "" : ", since each log waits for the device"));
  else if (percent(callbacks) > 20)
    lines.push_back(
        fmt::format("callbacks take {:.0f} % of the time: CallbackTimes, or trace_file, shows which",
                    percent(callbacks)));

  if (percent(evaluation) > 50)
    lines.push_back(
        fmt::format("evaluations take {:.0f} % of the time: evaluate less often (eval_steps), or larger "
                    "batches (per_device_eval_batch_size is {})",
                    percent(evaluation), args.per_device_eval_batch_size));
  if (percent(saving) > (args.save_async ? 50 : 20))
    lines.push_back(fmt::format(
        "saving takes {:.0f} % of the time: {}save less often (save_steps)", percent(saving),
        args.save_async ? "" : "save_async writes checkpoints while the training goes on; otherwise, "));

  const auto processes = static_cast<int>(args.launch.local_world_size);
  constexpr double small_step = 2e-3;
  const double step = (times[forward] + times[backward] + times[update]) / static_cast<double>(facts.steps);
  if (facts.on_cpu && processes > 1 && facts.threads > 1 && processes * facts.threads > facts.cores)
    lines.push_back(
        fmt::format("{} processes with {} threads each share {} cores, and wait for each other: "
                    "set OMP_NUM_THREADS={}",
                    processes, facts.threads, facts.cores, std::max(1, facts.cores / processes)));
  else if (facts.on_cpu && facts.threads > 1 && step < small_step)
    lines.push_back(
        fmt::format("a step computes for only {:.2f} ms, with {} threads, which may wait for each "
                    "other longer than they work: try OMP_NUM_THREADS=1",
                    1e3 * step, facts.threads));
  return lines;
}

}  // namespace etude::inline v0
