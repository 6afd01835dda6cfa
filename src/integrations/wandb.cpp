#include "etude/integrations/wandb.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "etude/any_trainer.hpp"
#include "etude/base/counting.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/base/lower_case.hpp"
#include "etude/base/message.hpp"
#include "etude/callbacks/log_file.hpp"
#include "etude/callbacks/model_summary.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/tracked_run.hpp"
#include "etude/integrations/wandb/offline_run.hpp"
#include "etude/integrations/wandb/run_settings.hpp"
#include "etude/integrations/wandb/watch.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

std::int64_t wandb_parameter_count(const Model& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters())
    if (parameter.defined()) count += parameter.numel();
  return count;
}

/// Whether Hugging Face's callback keeps this name out of the history.
bool wandb_is_single_value(std::string_view name) {
  constexpr std::array<std::string_view, 5> names{"train_runtime", "train_samples_per_second",
                                                  "train_steps_per_second", "train_loss", "total_flos"};
  return std::ranges::find(names, name) != names.end();
}

void wandb_write_architecture(const Model& model, const std::filesystem::path& folder) {
  std::ofstream(folder / "model_architecture.txt") << model.name() << '\n' << summary(model).table();
}

}  // namespace

}  // namespace detail

struct WandbCallback::Open {
  Open(const TrainingArguments& args_, const std::filesystem::path& directory, detail::WandbRunInfo info)
      : args(args_), run(directory, std::move(info)) {}
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
  ~Open() {
    run.finish(exit_code);
    try {
      report_faults();
      report_counts();
    } catch (const std::exception&) {
      // out of memory
    }
  }

  void report_faults() {
    for (const auto& fault : run.take_faults()) message(args, LogLevel::warning, "WandbCallback: {}", fault);
  }

  /// Reports the number of rows and their folder, if it has changed since the last report.
  void report_counts() {
    const std::pair counts(run.rows(), run.lost());
    if (std::exchange(reported, counts) == counts) return;
    const auto run_folder = run.folder().string();
    if (counts.second > 0)
      message(args, LogLevel::warning, "WandbCallback: {} rows of run {} in {}, and {} records lost",
              counts.first, run.info().id, run_folder, counts.second);
    else
      message(args, LogLevel::info, "WandbCallback: {} rows of run {}; `wandb sync {}` uploads them",
              counts.first, run.info().id, run_folder);
  }

  TrainingArguments args;
  detail::WandbRun run;
  detail::WandbSettings settings = {};
  detail::WandbItems histograms = {};  ///< for the next row
  std::int64_t watch_steps = 0;
  bool in_training = false;
  bool has_trained = false;
  int exit_code = 0;
  std::optional<std::pair<std::int64_t, std::int64_t>> reported = {};  ///< Rows, and lost records.
};

bool WandbCallback::is_available() {
  try {
    return detail::wandb_is_enabled({});
  } catch (const ArgumentError&) {
    return true;  // the training then reports the error
  }
}

bool WandbCallback::reads_parameters() const {
  const auto watched = detail::lower_case(detail::option_or_environment(watch, "WANDB_WATCH"));
  return (watched == "parameters" || watched == "all") && detail::wandb_is_enabled(*this);
}

std::string WandbCallback::folder() const { return open_run ? open_run->run.folder().string() : ""; }

template <class Act>
void WandbCallback::attempt(Act act) {
  try {
    act();
  } catch (const std::exception& error) {
    message(open_run->args, LogLevel::warning, "WandbCallback: {}", error.what());
  }
  open_run->report_faults();
}

void WandbCallback::open(const Context& e) {
  auto settings = detail::wandb_settings(*this, e);
  for (const auto& warning : settings.warnings) message(e.args, LogLevel::warning, "{}", warning);
  if (!settings.enabled) return;

  const auto resume_file = settings.directory / "wandb-resume.json";
  const bool is_automatic = settings.resume == "auto" || settings.resume == "true";
  auto info = settings.info;
  if (info.id.empty() && settings.resume != "never") info.id = state.run_id;
  if (info.id.empty() && settings.resume == "must")
    throw ArgumentError(
        "resume is 'must': must have the run to continue, as id, WANDB_RUN_ID or a checkpoint's run");
  info.resumed = !info.id.empty() &&
                 (info.id == state.run_id || settings.resume == "allow" || settings.resume == "must");
  if (info.id.empty() && is_automatic) {
    info.id = detail::wandb_interrupted_run(resume_file);
    info.resumed = !info.id.empty();
  }
  if (info.id.empty()) info.id = detail::wandb_random(8);
  if (info.id != state.run_id) {
    state.next_step = 0;
    state.run_seconds = 0;
  }
  state.run_id = info.id;
  info.starting_step = state.next_step;
  info.starting_seconds = state.run_seconds;
  info.start = std::chrono::system_clock::now();

  open_run = std::make_shared<Open>(e.args, settings.directory, std::move(info));
  if (is_automatic) open_run->run.keep_id_in(resume_file);
  const auto count = detail::wandb_parameter_count(e.model);
  open_run->run.configure({{"model/num_parameters", count}});
  if (settings.log_end)
    attempt([&] {
      const auto folder = open_run->run.artifacts().make_folder();
      detail::wandb_write_architecture(e.model, folder);
      open_run->run.artifacts().log(
          folder, model_name(e), {"base_model"},
          {{"model_config", config}, {"num_parameters", count}, {"initial_model", true}});
    });
  if (settings.is_online)
    message(e.args, LogLevel::warning,
            "WandbCallback sends nothing by itself: this run is written to {}, and `wandb sync {}` uploads "
            "it (WANDB_MODE=offline hides this warning)",
            folder(), folder());
  open_run->watch_steps = std::max<std::int64_t>(100, e.state.logging_steps);
  open_run->settings = std::move(settings);
}

std::string WandbCallback::model_name(const Context& e) const {
  const bool is_named =
      !name.empty() || (e.args.run_name && *e.args.run_name != detail::tracked_arguments(e).output_dir);
  return "model-" + (is_named ? open_run->run.info().name : state.run_id);
}

void WandbCallback::on(const TrainBegin& e) {
  if (!e.state.is_world_process_zero) return;
  failure = 0;
  if (detail::starts_from_scratch(e.state)) {
    // A run with earlier evaluations, or without rows, becomes the training's run.
    const bool continues = open_run && (!open_run->has_trained || open_run->run.rows() == 0);
    if (!continues) {
      open_run.reset();
      if (detail::wandb_settings(*this, e).info.id != state.run_id) state.run_id.clear();
    }
  } else if (open_run) {
    if (open_run->has_trained || open_run->run.info().id != state.run_id) open_run.reset();
  }
  if (!open_run)
    open(e);
  else
    open_run->run.configure(detail::run_parameters(e, config));
  if (!open_run) return;
  open_run->in_training = open_run->has_trained = true;
  open_run->exit_code = 0;
}

void WandbCallback::on(const GradientsComplete& e) {
  if (!open_run || (e.state.global_step + 1) % open_run->watch_steps != 0) return;
  const auto& settings = open_run->settings;
  if (settings.watch_gradients || settings.watch_parameters)
    attempt([&] {
      open_run->histograms = detail::wandb_histograms(e, settings.watch_gradients, settings.watch_parameters);
    });
}

void WandbCallback::on(const Log& e) { log(e, e.logs); }

void WandbCallback::on(const Predict& e) { log(e, e.metrics); }

void WandbCallback::on(const LogSamples& e) {
  if (!is_open(e)) return;
  attempt([&] {
    open_run->run.log_samples(state.next_step, e.state.global_step, e.samples);
    end_row();
  });
}

bool WandbCallback::is_open(const Context& e) {
  if (!e.state.is_world_process_zero) return false;
  if (!open_run && detail::wandb_is_enabled(*this)) open(e);
  return open_run != nullptr;
}

void WandbCallback::end_row() {
  detail::count_up(state.next_step);
  state.run_seconds = open_run->run.seconds();
}

void WandbCallback::log(const Context& e, const Metrics& metrics) {
  if (!is_open(e)) return;
  attempt([&] {
    detail::WandbValues row, alone;
    for (const auto& [key, value] : metrics)
      (detail::wandb_is_single_value(key) ? alone : row).emplace_back(key, value);
    open_run->run.log(state.next_step, e.state.global_step, row, std::exchange(open_run->histograms, {}));
    end_row();
    open_run->run.summarize(alone);
  });
}

void WandbCallback::on(const Save& e) {
  if (!open_run || !open_run->settings.log_checkpoints) return;
  attempt([&] {
    auto metadata = open_run->run.summary_numbers();
    metadata["model/num_parameters"] = detail::wandb_parameter_count(e.model);
    auto& artifacts = open_run->run.artifacts();
    artifacts.log(artifacts.copy_of(e.checkpoint), model_name(e), {}, metadata);
  });
}

void WandbCallback::log_final_model(const Context& e) {
  auto metadata = open_run->run.summary_numbers();
  if (e.args.load_best_model_at_end) {
    metadata = {{"train/total_floss", e.state.total_flos},
                {"model/num_parameters", detail::wandb_parameter_count(e.model)}};
    if (e.state.best_metric && e.args.metric_for_best_model)
      metadata["eval/" + *e.args.metric_for_best_model] = *e.state.best_metric;
  }
  metadata["final_model"] = true;
  const auto folder = open_run->run.artifacts().make_folder();
  e.trainer.save_model(folder);
  detail::wandb_write_architecture(e.model, folder);
  open_run->run.artifacts().log(folder, model_name(e), {"final_model"}, metadata);
}

void WandbCallback::on(const TrainError&) { fail(1); }

void WandbCallback::on(const Stop& e) {
  if (stops_for_signal(e.reason)) fail(255);  // as when Python is ended by Ctrl-C
}

void WandbCallback::fail(int exit_code) {
  // An error after a training doesn't mark it as failed.
  if (open_run && open_run->has_trained && !open_run->in_training) return;
  failure = exit_code;
  if (open_run) open_run->exit_code = exit_code;
}

void WandbCallback::on(const TrainEnd& e) {
  const int code = std::exchange(failure, 0);
  if (!open_run) return;
  const bool was_in_training = std::exchange(open_run->in_training, false);
  // A log may have opened the run after a training that failed before this callback's TrainBegin.
  open_run->has_trained = true;
  if (code != 0) open_run->exit_code = code;
  // Without a summary, this was only a first attempt, whose batches were too large.
  const bool has_come_to_its_end = code == 0 && open_run->run.summary_numbers().contains("train_runtime");
  if (was_in_training && has_come_to_its_end && open_run->settings.log_end)
    attempt([&] { log_final_model(e); });
  // A signal ends the process without destructors.
  if (code != 0 || SignalGuard::came() != 0)
    open_run.reset();
  else if (was_in_training)
    open_run->report_counts();
}

}  // namespace etude::inline v0
