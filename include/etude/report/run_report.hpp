#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/io/file_system.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/report/series.hpp"

/// The contents of the page of one or several trainings, and functions that write and read it. ReportCallback
/// fills it while a training runs.
namespace etude::inline v0 {

ETUDE_ENUM(RunStatus, running, finished, stopped, failed);

/// An event that happened once, at a step.
ETUDE_ENUM(ReportMarkKind, began, resumed, saved, stopped, failed, ended);
struct ReportMark {
  ETUDE_STRUCT(ReportMark, (ReportMarkKind, kind, "what happened", ReportMarkKind::began),
               (std::int64_t, step, "the step after which it happened", 0),
               (double, time, "when, in seconds since 1970", 0.0),
               (std::string, text, "a path, a reason or an error"));
};

struct ReportHandlers {
  ETUDE_STRUCT(ReportHandlers, (std::string, event, "an event"),
               (std::vector<std::string>, callbacks, "its callbacks in order"));
};

/// One process's time by activity, and its memory.
struct ReportRank {
  ETUDE_STRUCT(ReportRank, (std::int64_t, rank, "rank of the process", 0),
               (std::vector<double>, activities, "seconds of each activity"),
               (double, memory, "resident memory in bytes", 0.0),
               (std::optional<double>, device_memory, "the most bytes allocated on the device"));
};

ETUDE_ENUM(ReportSampleKind, text, image, audio);
struct ReportSample {
  ETUDE_STRUCT(ReportSample, (std::int64_t, step, "the step at which it was made", 0),
               (std::string, name, "name as in a log"),
               (ReportSampleKind, kind, "what it is", ReportSampleKind::text),
               (std::string, content, "the text, or a PNG or WAV file in Base64"),
               (std::string, caption, "a caption"),
               (bool, is_cut, "the text goes on, or the file is left out for its size", false));
};

struct ReportMatrix {
  ETUDE_STRUCT(ReportMatrix, (std::string, name, "name in the logs"),
               (std::int64_t, step, "the step at which it was measured", 0),
               (std::vector<std::vector<double>>, rows, "a row for each label, a column for each prediction"),
               (std::vector<std::string>, classes, "names of the classes; empty: their numbers"));
};

/// The curve of a learning-rate range test.
struct ReportLearningRates {
  ETUDE_STRUCT(ReportLearningRates, (std::vector<double>, learning_rates, "the rate of each step"),
               (std::vector<double>, losses, "its loss"),
               (std::vector<double>, smoothed, "its smoothed loss"),
               (std::optional<double>, suggested, "the suggested rate"));
};

using NamedNumbers = std::map<std::string, double>;

/// The data that a page shows about one training.
struct RunReport {
  ETUDE_STRUCT(
      RunReport, (std::string, id, "of the training; it stays the same when that is resumed"),
      (std::string, name, "the title"), (RunStatus, status, "how the training is", RunStatus::running),
      (std::string, reason, "why it stopped or failed"),
      (double, began, "when it began, in seconds since 1970", 0.0),
      (double, written, "when the page was written, in seconds since 1970", 0.0),
      (double, interval, "seconds until the page may be written again", 5.0),
      (std::int64_t, step, "update steps done", 0), (std::int64_t, max_steps, "update steps planned", 0),
      (double, epoch, "epochs done", 0.0), (std::int64_t, num_train_epochs, "epochs planned", 0),
      (std::int64_t, world_size, "processes", 1),
      (std::string, best_metric, "the metric that decides which model is best; empty: none does"),
      (std::optional<double>, best_value, "its best value"),
      (std::optional<std::int64_t>, best_step, "the step at which it was measured"),
      (std::optional<std::string>, best_checkpoint, "the checkpoint of that step"),
      (std::optional<std::string>, trial_name, "the trial's name in a hyperparameter search"),
      (nlohmann::ordered_json, trial_params, "the trial's hyperparameters", nlohmann::ordered_json::object()),
      (nlohmann::ordered_json, arguments, "the training's arguments", nlohmann::ordered_json::object()),
      (std::vector<std::string>, changed, "the arguments that aren't the defaults"),
      (NamedNumbers, summary, "values that are logged once, at the end"),
      (NamedNumbers, afterwards, "values that are logged after the end, such as those of the best model"),
      (std::vector<SeriesColumns>, series, "values over update steps"),
      (std::int64_t, series_left_out, "series that don't fit", 0),
      (std::vector<ReportMark>, marks, "what happened, oldest first"),
      (std::vector<std::string>, activities, "the activities that the time is divided among"),
      (std::vector<ReportRank>, ranks, "each process"),
      (std::vector<ReportHandlers>, handlers, "the events that callbacks handle"),
      (std::vector<ReportSample>, samples, "texts, pictures and sounds, oldest first"),
      (std::vector<ReportMatrix>, matrices, "confusion matrices"),
      (std::optional<ReportLearningRates>, learning_rates, "a learning-rate range test before the training"));
};

namespace detail {

/// The largest page that can be read, in bytes.
constexpr std::size_t most_report_bytes = std::size_t{64} << 20;

/// The HTML page of one or several runs.
std::string run_page(const std::vector<RunReport>& runs, std::string_view title);

}  // namespace detail

/// Reads the runs from a page that ReportCallback or `write_comparison` wrote. `page` may also be a
/// training's folder, which has the page as `report.html`. Throws CheckpointError if the page can't be read,
/// and ArgumentError, which names the file and the field, if it isn't such a page.
std::vector<RunReport> read_report(const std::filesystem::path& page);

/// Writes a page that compares the runs of several pages or folders (see `read_report`): each curve in one
/// chart for all runs, the arguments that differ, and the final metrics. The file is replaced atomically.
/// Throws as `read_report` does, ArgumentError if there is no run, and CheckpointError if the page can't be
/// written.
void write_comparison(const std::filesystem::path& page, const std::vector<std::filesystem::path>& runs,
                      FileSystem& files = default_file_system());

}  // namespace etude::inline v0
