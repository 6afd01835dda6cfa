#include "etude/callbacks/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <utility>
#include <variant>

#include "etude/any_trainer.hpp"
#include "etude/base/base64.hpp"
#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/base/utf8.hpp"
#include "etude/callbacks/log_file.hpp"
#include "etude/formats/wav.hpp"
#include "etude/io/file_system.hpp"
#include "etude/libtorch/memory_usage.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/metrics/time_by_activity.hpp"
#include "etude/model/model.hpp"
#include "etude/parallel/communicator.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json.hpp"
#include "etude/report/picture.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string name_of_run(const TrainingArguments& args, const std::string& title) {
  if (!title.empty()) return title;
  if (args.run_name) return *args.run_name;
  const auto folder = std::filesystem::path(args.output_dir).lexically_normal();
  const auto name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
  return name.empty() ? "training" : name.string();
}

/// The largest side of an image on a page, in pixels.
constexpr std::size_t most_picture_side = 256;

ReportSample report_sample(std::int64_t step, const Sample& sample) {
  ReportSample result{
      .step = step, .name = sample.name, .kind = {}, .content = {}, .caption = sample.caption};
  if (const auto* image = std::get_if<ImageSample>(&sample.content)) {
    const auto& pixels = image->pixels;
    const auto size = [&](std::int64_t axis) { return static_cast<std::size_t>(pixels.size(axis)); };
    result.kind = ReportSampleKind::image;
    if (pixels.numel() == 0)
      result.is_cut = true;
    else
      result.content = base64(png_bytes({pixels.data_ptr<std::uint8_t>(), pixels.nbytes()}, size(0), size(1),
                                        size(2), most_picture_side));
  } else if (const auto* audio = std::get_if<AudioSample>(&sample.content)) {
    result.kind = ReportSampleKind::audio;
    result.content = base64(wav_file(audio->frames, audio->sample_rate));
  } else {
    result.kind = ReportSampleKind::text;
    result.content = std::get<std::string>(sample.content);
  }
  return result;
}

ReportRank report_rank(const Context& e) {
  const auto times = e.trainer.time_by_activity();
  ReportRank rank{.rank = e.args.process_index(),
                  .activities = {times.seconds.begin(), times.seconds.end()},
                  .memory = static_cast<double>(resident_memory()),
                  .device_memory = std::nullopt};
  const auto parameters = e.model.parameters();
  if (parameters.empty()) return rank;
  if (const auto device = device_memory(parameters.front().device()))
    rank.device_memory = static_cast<double>(device->peak_allocated);
  return rank;
}

/// The seconds spent on anything but evaluations and checkpoints.
double busy_seconds(const TimeByActivity& times) {
  return times.total() - times[TimedActivity::evaluation] - times[TimedActivity::saving];
}

/// Copies the arguments into the report, and the names of arguments that differ from the defaults.
void take_arguments(RunReport& run, const TrainingArguments& args) {
  run.arguments = to_json_value(args);
  const auto defaults = to_json_value(TrainingArguments{});
  run.changed.clear();
  for (const auto& [name, value] : run.arguments.items())
    if (!defaults.contains(name) || defaults[name] != value) run.changed.push_back(name);
}

/// Copies the training's position into the report.
void take_state(RunReport& run, const Context& e) {
  const auto& state = e.state;
  run.step = state.global_step;
  run.max_steps = state.max_steps;
  run.epoch = state.epoch;
  run.num_train_epochs = state.num_train_epochs;
  run.world_size = e.args.world_size();
  run.best_value = state.best_metric;
  run.best_step = state.best_global_step;
  run.best_checkpoint = state.best_model_checkpoint;
  run.best_metric = state.best_metric ? best_metric_name(e.args) : "";
  run.trial_name = state.trial_name;
  if (state.trial_params.is_object()) run.trial_params = nlohmann::ordered_json(state.trial_params);
}

}  // namespace

}  // namespace detail

void ReportCallback::on(const TrainBegin& e) {
  detail::check_fields(*this);
  is_training = true;
  if (!e.state.is_world_process_zero) return;
  begin_page(e);
  try {
    write(e);
  } catch (const CheckpointError& error) {
    throw ArgumentError(fmt::format("path is {}: {}", path, error.what()));
  }
}

void ReportCallback::begin_page(const TrainBegin& e) {
  auto learning_rates = std::move(recorder.run.learning_rates);
  recorder = {};
  recorder.run.learning_rates = std::move(learning_rates);
  watch = {};
  resumed.reset();
  auto& run = recorder.run;
  const auto now = detail::seconds_since_1970();
  run.began = now;
  const bool continues = e.is_resumed && !state.run_id.empty();
  if (!continues) state = {.run_id = detail::random_name()};
  if (e.is_resumed) resumed.emplace();
  std::error_code ignored;
  if (const auto file = detail::log_path(e.args, path); continues && std::filesystem::exists(file, ignored)) {
    try {
      const auto earlier = read_report(file);
      if (earlier.size() == 1 && earlier.front().id == state.run_id) {
        const auto& page = earlier.front();
        recorder.take(page, e.state.global_step);
        resumed = {.ranks = page.ranks, .summary = page.summary, .afterwards = page.afterwards};
      }
    } catch (const Error& error) {
      message(e.args, LogLevel::warning, "the page starts over, without the samples of earlier steps: {}",
              error.what());
    }
  }
  for (const auto& entry : e.state.log_history) {
    std::vector<std::pair<std::string, double>> logs;
    std::int64_t step = 0;
    for (const auto& [name, value] : entry)
      if (name == "step" && value.is_number())
        step = value.get<std::int64_t>();
      else if (value.is_number())
        logs.emplace_back(name, value.get<double>());
    recorder.log(step, logs);
  }
  run.id = state.run_id;
  run.name = detail::name_of_run(e.args, title);
  run.interval = seconds;
  run.summary.clear();
  run.afterwards.clear();
  detail::take_arguments(run, e.args);
  for (const auto& [event, callbacks] : e.trainer.event_handlers())
    run.handlers.push_back({.event = std::string(event), .callbacks = callbacks});
  run.activities.assign(enum_names<TimedActivity>.begin(), enum_names<TimedActivity>.end());
  recorder.mark(e.is_resumed ? ReportMarkKind::resumed : ReportMarkKind::began, e.state.global_step, now, "");
  const auto times = e.trainer.time_by_activity();
  watch.began = times.total();
  watch.before = std::max(state.elapsed, recorder.last("report/elapsed"));
  watch.busy = detail::busy_seconds(times);
  watch.first_step = watch.last_step = e.state.global_step;
  is_begun = true;
}

void ReportCallback::on(const Log& e) {
  if (!is_begun || !e.state.is_world_process_zero) return;
  measure(e);
  const std::vector<std::pair<std::string, double>> logs(e.logs.begin(), e.logs.end());
  recorder.log(e.state.global_step, logs);
  write_if_due(e);
}

// Records speed and memory at a log of training steps.
void ReportCallback::measure(const Context& e) {
  if (!is_training || e.state.global_step <= watch.last_step) return;
  const auto times = e.trainer.time_by_activity();
  const double busy = detail::busy_seconds(times), spent = busy - watch.busy;
  const auto steps = static_cast<double>(e.state.global_step - watch.last_step);
  state.elapsed = watch.before + times.total() - watch.began;
  std::vector<std::pair<std::string, double>> values{{"report/elapsed", state.elapsed}};
  if (spent > 0) {
    values.emplace_back("report/steps_per_second", steps / spent);
    if (const auto examples = e.trainer.run_config().train_total_batch_size; examples > 0)
      values.emplace_back("report/samples_per_second", steps * static_cast<double>(examples) / spent);
  }
  const auto rank = detail::report_rank(e);
  values.emplace_back("report/resident_memory", rank.memory);
  if (rank.device_memory) values.emplace_back("report/device_memory", *rank.device_memory);
  recorder.log(e.state.global_step, values);
  watch.busy = busy;
  watch.last_step = e.state.global_step;
}

void ReportCallback::on(const LogSamples& e) {
  if (!is_begun || !e.state.is_world_process_zero) return;
  for (const auto& sample : e.samples)
    recorder.add(detail::report_sample(e.state.global_step, sample), static_cast<std::size_t>(sample_steps),
                 static_cast<std::size_t>(sample_bytes));
  write_if_due(e);
}

void ReportCallback::on(const Save& e) {
  if (is_begun && e.state.is_world_process_zero)
    recorder.mark(ReportMarkKind::saved, e.state.global_step, detail::seconds_since_1970(),
                  e.checkpoint.string());
}

// All processes call this together. A log can't trigger it, because a program may write a log in only one
// process.
void ReportCallback::gather(const Context& e) {
  if (!is_training || e.args.world_size() == 1) return;
  const auto all = e.trainer.communicator().gather_bytes(to_json_value(detail::report_rank(e)).dump());
  if (std::ssize(all) < e.args.world_size() || !e.state.is_world_process_zero) return;
  recorder.run.ranks.clear();
  for (const auto& rank : all) recorder.run.ranks.push_back(from_json_text<ReportRank>(rank));
}

void ReportCallback::on(const Stop& e) {
  if (!is_begun || !e.state.is_world_process_zero) return;
  recorder.run.status = RunStatus::stopped;
  recorder.run.reason = mended_utf8(e.reason);
  recorder.mark(ReportMarkKind::stopped, e.state.global_step, detail::seconds_since_1970(), e.reason);
  write_or_report(e);
}

void ReportCallback::on(const TrainError& e) {
  if (!is_training || !is_begun || !e.state.is_world_process_zero) return;
  auto text = mended_utf8(e.what);
  if (!e.callback.empty()) text += fmt::format(" (in {}, at {})", e.callback, e.event);
  recorder.run.status = RunStatus::failed;
  recorder.run.reason = text;
  recorder.mark(ReportMarkKind::failed, e.state.global_step, detail::seconds_since_1970(), text);
  write_or_report(e);
}

void ReportCallback::on(const TrainEnd& e) {
  is_training = false;
  if (!is_begun || !e.state.is_world_process_zero) return;
  if (recorder.run.status == RunStatus::running) recorder.run.status = RunStatus::finished;
  recorder.mark(ReportMarkKind::ended, e.state.global_step, detail::seconds_since_1970(), "");
  write_or_report(e);
}

// False if a resumed training hasn't made a step yet.
bool ReportCallback::has_trained(const Context& e) const {
  return !resumed || e.state.global_step > watch.first_step;
}

void ReportCallback::write_if_due(const Context& e) {
  // A slow disk, or a large page, must not slow the training down.
  constexpr int least_times = 100;
  const auto pause = std::max(std::chrono::duration<double>(seconds),
                              std::chrono::duration<double>(watch.last_write * least_times));
  if (!is_training || Watch::Clock::now() - watch.written >= pause) write_or_report(e);
}

void ReportCallback::write_or_report(const Context& e) {
  try {
    write(e);
  } catch (const CheckpointError& error) {
    message(e.args, LogLevel::error, "the page of the training could not be written: {}", error.what());
  }
}

void ReportCallback::write(const Context& e) {
  const auto begin = Watch::Clock::now();
  auto& run = recorder.run;
  detail::take_state(run, e);
  run.written = detail::seconds_since_1970();
  const auto own = detail::report_rank(e);
  if (run.ranks.empty())
    run.ranks.push_back(own);
  else
    run.ranks.front() = own;
  auto report = recorder.report();
  if (!has_trained(e)) {
    report.ranks = resumed->ranks;
    report.summary = resumed->summary;
    report.afterwards.insert(resumed->afterwards.begin(), resumed->afterwards.end());
  }
  for (auto& matrix : report.matrices)
    if (class_names.size() == matrix.rows.size()) matrix.classes = class_names;
  const auto file = detail::log_path(e.args, path);
  auto& files = e.trainer.options().files();
  files.create_directories(file.parent_path());
  write_file(files, file, detail::run_page({std::move(report)}, run.name));
  watch.written = Watch::Clock::now();
  watch.last_write = watch.written - begin;
}

}  // namespace etude::inline v0
