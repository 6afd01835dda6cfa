#include "etude/metrics/time_by_activity.hpp"

#include <doctest/doctest.h>

#include <initializer_list>
#include <string>
#include <utility>

namespace metrics_time_by_activity_test {

using enum etude::TimedActivity;

etude::TimeByActivity times(std::initializer_list<std::pair<etude::TimedActivity, double>> seconds) {
  etude::TimeByActivity result;
  for (const auto& [activity, value] : seconds) result.seconds[static_cast<std::size_t>(activity)] = value;
  return result;
}

/// The only line of advice; empty if there is none.
std::string advised(const etude::TimeByActivity& spent, const etude::TrainingArguments& args = {},
                    const etude::AdviceFacts& facts = {.steps = 100}) {
  const auto lines = etude::advice(spent, args, facts);
  REQUIRE(lines.size() <= 1);
  return lines.empty() ? "" : lines.front();
}

TEST_CASE("times have a total, shares of it, and a table with the longest activity first") {
  const auto spent = times({{data, 1}, {forward, 2.5}, {update, 0.5}});
  CHECK(spent.total() == 4);
  CHECK(spent.share(forward) == 0.625);
  CHECK(spent.table() ==
        "activity          seconds       %\n"
        "forward             2.500   62.50\n"
        "data                1.000   25.00\n"
        "update              0.500   12.50\n"
        "total               4.000  100.00\n");
  CHECK(etude::TimeByActivity().share(data) == 0);
}

TEST_CASE("waiting for data: use workers, or more of them") {
  etude::TrainingArguments args;
  CHECK(advised(times({{forward, 79}, {data, 21}}), args) ==
        "the training waits for its data 21 % of the time, and dataloader_num_workers is 0: workers prepare "
        "batches while it computes");
  CHECK(advised(times({{forward, 80}, {data, 20}}), args).empty());
  args.dataloader_num_workers = 2;
  CHECK(advised(times({{forward, 50}, {data, 50}}), args) ==
        "the training waits for its data 50 % of the time: dataloader_num_workers is 2, and more may help");
}

TEST_CASE("logs of every step, and callbacks that take long") {
  etude::TrainingArguments args;
  const auto spent = times({{forward, 88}, {logging, 5}, {callbacks, 7}});
  CHECK(advised(spent, args).empty());
  args.logging_steps = 1;
  CHECK(advised(spent, args) ==
        "logs and callbacks take 12 % of the time, and logging_steps is 1: log less often");
  CHECK(advised(spent, args, {.steps = 100, .on_cpu = false}) ==
        "logs and callbacks take 12 % of the time, and logging_steps is 1: log less often, since each log "
        "waits for the device");
  args.logging_strategy = etude::IntervalStrategy::epoch;
  CHECK(advised(spent, args).empty());
  CHECK(advised(times({{forward, 60}, {callbacks, 40}}), args) ==
        "callbacks take 40 % of the time: CallbackTimes, or trace_file, shows which");
}

TEST_CASE("evaluations and checkpoints that take most of the time") {
  etude::TrainingArguments args;
  CHECK(advised(times({{forward, 40}, {evaluation, 60}}), args) ==
        "evaluations take 60 % of the time: evaluate less often (eval_steps), or larger batches "
        "(per_device_eval_batch_size is 8)");
  const auto saves = times({{forward, 60}, {saving, 40}});
  CHECK(advised(saves, args) ==
        "saving takes 40 % of the time: save_async writes checkpoints while the training goes on; otherwise, "
        "save less often (save_steps)");
  args.save_async = true;
  CHECK(advised(saves, args).empty());
}

TEST_CASE("more threads than a small step, or the cores, have work for") {
  etude::TrainingArguments args;
  const auto spent = times({{forward, 6}, {backward, 6}, {update, 3}});
  CHECK(advised(spent, args, {.steps = 10'000, .threads = 8, .cores = 8}) ==
        "a step computes for only 1.50 ms, with 8 threads, which may wait for each other longer than they "
        "work: try OMP_NUM_THREADS=1");
  CHECK(advised(spent, args, {.steps = 10'000, .threads = 1, .cores = 8}).empty());
  CHECK(advised(spent, args, {.steps = 10'000, .threads = 8, .cores = 8, .on_cpu = false}).empty());
  CHECK(advised(spent, args, {.steps = 1'000, .threads = 8, .cores = 8}).empty());
  args.launch.local_world_size = 4;
  CHECK(advised(spent, args, {.steps = 1'000, .threads = 4, .cores = 8}) ==
        "4 processes with 4 threads each share 8 cores, and wait for each other: set OMP_NUM_THREADS=2");
}

TEST_CASE("a short training, or one without steps, gets no advice") {
  CHECK(advised(times({{data, 9.9}})).empty());
  CHECK(advised(times({{data, 1000}}), {}, {.steps = 0}).empty());
}

}  // namespace metrics_time_by_activity_test
