#include "etude/integrations/tensorboard.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/base/message.hpp"
#include "etude/callbacks/log_file.hpp"
#include "etude/callbacks/model_summary.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/tracked_run.hpp"
#include "etude/integrations/tensorboard/event_file.hpp"
#include "etude/integrations/tensorboard/summary_writer.hpp"
#include "etude/model/model.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {
namespace detail {

/// An open run.
struct TensorBoardRun {
  explicit TensorBoardRun(const std::filesystem::path& folder) : writer(folder) {}

  SummaryWriter writer;
  std::optional<SummaryWriter> session = {};  ///< writes the run for the HPARAMS page
  Metrics last = {};                          ///< the last value of each metric, by tag
  std::set<std::string_view> reported = {};   ///< the kinds of errors already reported
  bool is_trained = false, is_summed_up = false, has_ended = false, has_failed = false,
       histograms_are_due = false;

  std::int64_t lost() const { return writer.lost() + (session ? session->lost() : 0); }

  /// Runs `part`, whose errors mustn't end the training.
  template <class Part>
  void attempt(const Context& e, std::string_view what, Part part) {
    try {
      part();
    } catch (const std::exception& error) {
      if (reported.insert(what).second)
        message(e.args, LogLevel::warning, "TensorBoard: {} is not written: {}", what, error.what());
    }
    if (lost() > 0 && reported.insert("lost").second)
      message(e.args, LogLevel::warning, "TensorBoard: {} can't be written any more: {}",
              writer.path().string(), std::strerror(writer.lost() > 0 ? writer.error() : session->error()));
  }

  /// Writes a histogram of the tensor that `tensor_of` returns for each parameter.
  template <class TensorOf>
  void add_histograms(const Context& e, std::string_view what, std::int64_t step, TensorOf tensor_of) {
    attempt(e, "a histogram", [&] {
      std::int64_t not_finite = 0;
      for (const auto& [name, parameter] : e.model.named_parameters())
        if (const torch::Tensor& tensor = tensor_of(parameter); tensor.defined())
          not_finite += writer.add_histogram(fmt::format("{}/{}", what, name), tensor, step);
      if (not_finite > 0 && reported.insert(what).second)
        message(e.args, LogLevel::warning,
                "TensorBoard: {} numbers of the {} aren't finite at step {}, and histograms show the others",
                not_finite, what, step);
    });
  }
};

namespace tensorboard {

namespace {

/// Creates a folder with a name that no other run has here, and returns its name.
std::string new_run(const std::filesystem::path& runs) {
  const auto first = fmt::format("{:%b%d_%H-%M-%S}_{}", local_time(std::time(nullptr)), host_name());
  std::error_code error;
  std::filesystem::create_directories(runs, error);
  for (int i = 1; !error; ++i) {
    auto name = i == 1 ? first : fmt::format("{}_{}", first, i);
    if (std::filesystem::create_directory(runs / name, error)) return name;
  }
  throw ArgumentError(fmt::format("{} can't be created: {}", (runs / first).string(), error.message()));
}

bool is_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos;
}

/// The text as a Markdown code block.
std::string as_code(std::string_view text) {
  std::string code = "    ";
  for (const char c : text) {
    code += c;
    if (c == '\n') code += "    ";
  }
  return code;
}

std::string pretty(const nlohmann::ordered_json& json) {
  return as_code(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

/// The metrics of a history entry, by tag.
std::vector<std::pair<std::string, double>> metrics_in(const LogEntry& entry) {
  std::vector<std::pair<std::string, double>> values;
  for (const auto& [name, value] : entry) try {
      if (name != "step") values.emplace_back(tracked_name(name), from_json_value<double>(value));
    } catch (const ArgumentError&) {  // another program may log texts
    }
  return values;
}

/// Writes the logs from step `from` on, taken from the state's history.
void write_history(const TrainerState& state, std::int64_t from, SummaryWriter& writer) {
  for (const auto& entry : state.log_history) {
    const auto step = entry.find("step");
    if (step != entry.end() && step->second.is_number_integer() && step->second.get<std::int64_t>() >= from)
      writer.add_scalars(metrics_in(entry), step->second.get<std::int64_t>());
  }
}

/// Makes a resumed training continue where the checkpoint was written.
void go_on(const TrainerState& state, const std::vector<std::filesystem::path>& before, double last_time,
           SummaryWriter& writer) {
  const auto step = state.global_step;
  // Written twice: TensorBoard's slow loader takes a run's first START for its beginning, and hides nothing
  // for it.
  for (int i = 0; i < 2 && !before.empty(); ++i) writer.add_session_start(step);
  const auto kept = records_from(before, step, last_time);
  for (const auto& record : kept) writer.add_record(record);
  if (kept.empty()) write_history(state, before.empty() ? 0 : step, writer);
}

}  // namespace

}  // namespace tensorboard
}  // namespace detail

SummaryWriter* TensorBoardCallback::writer() const { return open_run ? &open_run->writer : nullptr; }

void TensorBoardCallback::open(const Context& e, bool is_resumed) {
  open_run.reset();
  const auto named = detail::option_or_environment(logging_dir, "TENSORBOARD_LOGGING_DIR");
  const std::string field = !logging_dir.empty() ? "logging_dir"
                            : !named.empty()     ? "TENSORBOARD_LOGGING_DIR"
                                                 : "output_dir";
  if (!is_resumed || state.start_time == 0) {
    state.start_time = detail::unix_seconds();
    state.last_time = 0;
  }
  std::vector<std::filesystem::path> before;
  try {
    std::filesystem::path folder;
    if (!named.empty()) {
      state.run.clear();
      folder = std::filesystem::absolute(detail::with_home(named));
    } else {
      const auto runs = std::filesystem::path(e.args.output_dir) / "runs";
      if (!is_resumed || !detail::tensorboard::is_name(state.run))
        state.run = detail::tensorboard::new_run(runs);
      folder = runs / state.run;
    }
    // The trial's name is added unless the path already has it.
    if (const auto search = detail::search_of(e); search && (!named.empty() || !search->has_folders))
      folder /= *e.state.trial_name;
    before = detail::tensorboard::event_files(folder);
    open_run = std::make_shared<detail::TensorBoardRun>(folder);
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("{} is '{}': must be a folder that can be written: {}", field,
                                    named.empty() ? e.args.output_dir : named, error.what()));
  }
  auto& writer = open_run->writer;
  if (is_resumed)
    open_run->attempt(e, "what was logged before", [&] {
      for (const auto& entry : e.state.log_history)
        for (const auto& [tag, value] : detail::tensorboard::metrics_in(entry)) open_run->last[tag] = value;
      detail::tensorboard::go_on(e.state, before, state.last_time, writer);
    });
  const auto step = e.state.global_step;
  open_run->attempt(e, "a text", [&] {
    writer.add_text("args", detail::tensorboard::pretty(to_json_value(detail::tracked_arguments(e))), step);
    if (!config.is_null()) writer.add_text("model_config", detail::tensorboard::pretty(config), step);
    if (!is_resumed || before.empty())
      writer.add_text("model", detail::tensorboard::as_code(summary(e.model).table()), step);
  });
  if (log_graph && (!is_resumed || before.empty()))
    open_run->attempt(e, "the model's graph", [&] { writer.add_graph(e.model); });
  state.last_time = writer.last_time();
}

void TensorBoardCallback::on(const TrainBegin& e) {
  if (!e.state.is_world_process_zero) return;
  const bool is_resumed = !detail::starts_from_scratch(e.state);
  if (!open_run || open_run->is_trained || is_resumed) open(e, is_resumed);
  open_run->is_trained = true;
  if (histogram_steps) state.histogram_timer.begin(e, *histogram_steps, "histogram_steps");
}

void TensorBoardCallback::on(const GradientsComplete& e) {
  if (!open_run || !histogram_steps) return;
  open_run->histograms_are_due = state.histogram_timer.due_in_step(e, *histogram_steps);
  if (!open_run->histograms_are_due) return;
  open_run->add_histograms(
      e, "gradients", e.state.global_step + 1,
      [](const torch::Tensor& parameter) -> const torch::Tensor& { return parameter.grad(); });
  state.last_time = open_run->writer.last_time();
}

void TensorBoardCallback::on(const StepEnd& e) {
  if (!open_run || !std::exchange(open_run->histograms_are_due, false)) return;
  open_run->add_histograms(e, "parameters", e.state.global_step,
                           [](const torch::Tensor& parameter) -> const torch::Tensor& { return parameter; });
  state.last_time = open_run->writer.last_time();
}

void TensorBoardCallback::on(const Log& e) {
  if (!e.state.is_world_process_zero) return;
  if (!open_run) open(e, /*is_resumed=*/false);
  open_run->attempt(e, "a log", [&] {
    std::vector<std::pair<std::string, double>> values;
    for (const auto& [name, value] : e.logs) {
      values.emplace_back(detail::tracked_name(name), value);
      open_run->last[values.back().first] = value;
    }
    open_run->is_summed_up |= e.logs.contains("train_runtime");
    open_run->writer.add_scalars(values, e.state.global_step);
    if (open_run->session) open_run->session->add_scalars(values, e.state.global_step);
  });
  state.last_time = open_run->writer.last_time();
}

void TensorBoardCallback::on(const LogSamples& e) {
  if (!e.state.is_world_process_zero) return;
  if (!open_run) open(e, /*is_resumed=*/false);
  open_run->attempt(e, "a sample", [&] {
    for (const auto& sample : e.samples)
      open_run->writer.add_sample(detail::tracked_name(sample.name), sample, e.state.global_step);
  });
  state.last_time = open_run->writer.last_time();
}

void TensorBoardCallback::on(const Save&) {
  // Flushes, so if a checkpoint survives a power failure, the logs before it do too.
  if (open_run) open_run->writer.flush();
}

void TensorBoardCallback::on(const Stop& e) {
  if (open_run && open_run->is_trained && !open_run->has_ended && stops_for_signal(e.reason))
    open_run->has_failed = true;
}

void TensorBoardCallback::on(const TrainError&) {
  if (open_run && open_run->is_trained && !open_run->has_ended) open_run->has_failed = true;
}

void TensorBoardCallback::on(const TrainEnd& e) {
  if (!open_run || !open_run->is_trained || std::exchange(open_run->has_ended, true)) return;
  // Without a summary, this was only a first attempt, whose batches were too large.
  if (log_hparams && open_run->is_summed_up)
    open_run->attempt(e, "the page of HPARAMS", [&] {
      const auto folder = open_run->writer.log_dir() / fmt::format("{:.6f}", state.start_time);
      // A resumed training may have ended here before; readers would keep its old status.
      std::error_code ignored;
      for (const auto& file : detail::tensorboard::event_files(folder))
        std::filesystem::remove(file, ignored);
      auto& session = open_run->session.emplace(folder);
      session.add_hparams(detail::flattened(detail::run_parameters(e, config)), state.start_time);
      session.add_scalars({open_run->last.begin(), open_run->last.end()}, e.state.global_step);
      session.add_session_end(open_run->has_failed ? SessionStatus::failure : SessionStatus::success);
      session.flush();
    });
  open_run->writer.flush();
  state.last_time = open_run->writer.last_time();
  const auto written = open_run->writer.written() + (open_run->session ? open_run->session->written() : 0);
  message(e.args, open_run->lost() > 0 ? LogLevel::warning : LogLevel::info,
          "TensorBoard: {} events in {}, {} lost", written, open_run->writer.log_dir().string(),
          open_run->lost());
}

}  // namespace etude::inline v0
