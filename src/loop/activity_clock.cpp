#include "etude/loop/activity_clock.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <filesystem>
#include <utility>

#include "etude/base/message.hpp"
#include "etude/io/file_system.hpp"
#include "etude/libtorch/threads.hpp"
#include "etude/loop/activity_trace.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// Where a process writes its trace.
std::filesystem::path trace_path(const TrainingArguments& args) {
  auto path = std::filesystem::path(args.output_dir) / *args.trace_file;
  if (const auto rank = args.process_index(); rank > 0)
    path.replace_filename(fmt::format("rank{}.{}", rank, path.filename().string()));
  return path;
}

}  // namespace

}  // namespace detail

ActivityClock::ActivityClock() = default;
ActivityClock::~ActivityClock() = default;

TimeByActivity ActivityClock::times() const {
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  TimeByActivity result;
  for (std::size_t i = 0; i < spent_.size(); ++i) result.seconds[i] = seconds(spent_[i]);
  if (runs_) result.seconds[static_cast<std::size_t>(activity_)] += seconds(Clock::now() - since_);
  return result;
}

void ActivityClock::Scope::record() const {
  if (begin_ != Clock::time_point()) clock_.trace_->add(to_string(clock_.activity_), "activity", -1, begin_);
}

void ActivityClock::Slice::record() const {
  if (clock_.trace_) clock_.trace_->add(name_, "training", number_, begin_);
}

ActivityClock::Run::Run(ActivityClock& clock, const TrainingArguments& args, FileSystem& files, bool on_cpu,
                        TimedActivity outside)
    : clock_(clock) {
  if (args.trace_file) {
    files.create_directories(detail::trace_path(args).parent_path());
    clock.trace_ = std::make_unique<ActivityTrace>();
  }
  clock.spent_ = {};
  clock.args_ = &args;
  clock.files_ = &files;
  clock.on_cpu_ = on_cpu;
  clock.steps_ = 0;
  clock.activity_ = outside;
  clock.since_ = Clock::now();
  clock.runs_ = true;
}

void ActivityClock::finish() noexcept {
  if (!runs_) return;
  spent_[static_cast<std::size_t>(activity_)] += Clock::now() - since_;
  runs_ = false;
  activity_ = TimedActivity::other;
  const auto trace = std::move(trace_);
  const auto& args = *args_;
  try {
    if (trace) {
      trace->save(*files_, detail::trace_path(args), args.process_index());
      if (trace->left_out() > 0)
        message(args, LogLevel::warning, "trace_file has the first {} slices of time; {} came later",
                ActivityTrace::most_slices, trace->left_out());
    }
  } catch (const std::exception& error) {
    message(args, LogLevel::error, "trace_file isn't written: {}", error.what());
  }
  try {
    const auto spent = times();
    message(args, LogLevel::info, "wall time of the training:\n{}", spent.table());
    if (args.process_index() == 0)
      for (const auto& line : advice(spent, args,
                                     {.steps = steps_,
                                     .threads = at::get_num_threads(),
                                     .cores = usable_cores(),
                                     .on_cpu = on_cpu_}))
        message(args, LogLevel::warning, "{}", line);
  } catch (const std::exception&) {  // A report must not end the program.
  }
}

ActivityClock::Scope::Scope(ActivityClock& clock, TimedActivity activity, bool is_shown)
    : clock_(clock), before_(clock.activity_) {
  clock_.enter(activity);
  if (clock_.trace_ && is_shown) [[unlikely]]
    begin_ = Clock::now();
}

ActivityClock::Scope::~Scope() {
  if (clock_.trace_) [[unlikely]]
    record();
  clock_.enter(before_);
}

ActivityClock::Slice::Slice(ActivityClock& clock, std::string_view name, std::int64_t number)
    : clock_(clock) {
  if (!clock_.trace_) [[likely]]
    return;
  name_ = name;
  number_ = number;
  begin_ = Clock::now();
}

ActivityClock::Slice::~Slice() {
  if (!name_.empty()) [[unlikely]]
    record();
}

void ActivityClock::enter(TimedActivity activity) {
  if (activity == activity_ || !runs_) return;
  const auto now = Clock::now();
  spent_[static_cast<std::size_t>(activity_)] += now - since_;
  since_ = now;
  activity_ = activity;
}

}  // namespace etude::inline v0
