#include "etude/report/run_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/mapped_file.hpp"
#include "etude/reflect/json.hpp"
#include "etude/report/html_page.hpp"
#include "page_files.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

constexpr std::string_view report_format = "etude-report";
constexpr std::int64_t report_version = 1;
constexpr std::string_view report_data_begin = "<script type=\"application/json\" id=\"runs\">";
constexpr std::string_view report_data_end = "</script>";

/// The data embedded in a page.
struct ReportDocument {
  ETUDE_STRUCT(ReportDocument, (std::string, format, "says what this is"),
               (std::int64_t, version, "of the format", 0), (std::vector<RunReport>, runs, "the runs"));
};

}  // namespace

std::string run_page(const std::vector<RunReport>& runs, std::string_view title) {
  const ReportDocument document{
      .format = std::string(report_format), .version = report_version, .runs = runs};
  const auto body = fmt::format(
      "<div id=\"page\"></div>\n<noscript>This page draws its charts with JavaScript, which this browser "
      "has turned off.</noscript>\n{}{}{}\n",
      report_data_begin, script_json(to_json_value(document)), report_data_end);
  return html_text_of({.title = title,
                       .styles = {run_css},
                       .body = body,
                       .scripts = {dom_js, text_js, axis_js, chart_js, sections_js, run_js}});
}

namespace {

/// Only Base64 is accepted, so that a page can't smuggle in HTML.
bool is_base64(std::string_view text) {
  return text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") ==
         text.npos;
}

/// Throws ArgumentError for a run that the page's script can't draw.
void check_run(const RunReport& run, const std::string& where) {
  const auto refuse = [&](const std::string& field, const std::string& problem) {
    throw ArgumentError(fmt::format("{}.{} {}", where, field, problem));
  };
  for (std::size_t i = 0; i < run.series.size(); ++i)
    check(run.series[i], fmt::format("{}.series[{}]", where, i));
  for (std::size_t i = 0; i < run.samples.size(); ++i)
    if (run.samples[i].kind != ReportSampleKind::text && !is_base64(run.samples[i].content))
      refuse(fmt::format("samples[{}].content", i), "isn't Base64: must be a file in that encoding");
  for (std::size_t i = 0; i < run.matrices.size(); ++i) {
    const auto& matrix = run.matrices[i];
    for (const auto& row : matrix.rows)
      if (row.size() != matrix.rows.size())
        refuse(
            fmt::format("matrices[{}].rows", i),
            fmt::format("has {} rows, and one of {} values: must be square", matrix.rows.size(), row.size()));
    if (!matrix.classes.empty() && matrix.classes.size() != matrix.rows.size())
      refuse(fmt::format("matrices[{}].classes", i),
             fmt::format("has {} names: must have {}, one for each row", matrix.classes.size(),
                         matrix.rows.size()));
  }
  for (std::size_t i = 0; i < run.ranks.size(); ++i)
    if (run.ranks[i].activities.size() != run.activities.size())
      refuse(fmt::format("ranks[{}].activities", i),
             fmt::format("has {} values: must have {}, as many as activities", run.ranks[i].activities.size(),
                         run.activities.size()));
  if (const auto& curve = run.learning_rates;
      curve && (curve->losses.size() != curve->learning_rates.size() ||
                curve->smoothed.size() != curve->learning_rates.size()))
    refuse("learning_rates",
           fmt::format("has {} rates, {} losses and {} smoothed losses: must have as many",
                       curve->learning_rates.size(), curve->losses.size(), curve->smoothed.size()));
  if (!run.arguments.is_object()) refuse("arguments", "isn't an object");
  if (!run.trial_params.is_object()) refuse("trial_params", "isn't an object");
}

std::vector<RunReport> runs_of(std::string_view page) {
  const auto begin = page.find(report_data_begin);
  const auto end = begin == page.npos ? begin : page.find(report_data_end, begin + report_data_begin.size());
  if (end == page.npos)
    throw ArgumentError("it has no data of a run: must be a page of ReportCallback or write_comparison");
  const auto from = begin + report_data_begin.size();
  auto document = from_json_text<ReportDocument>(page.substr(from, end - from));
  if (document.format != report_format || document.version != report_version)
    throw ArgumentError(fmt::format("format is '{}' and version {}: must be '{}' and {}", document.format,
                                    document.version, report_format, report_version));
  for (std::size_t i = 0; i < document.runs.size(); ++i)
    check_run(document.runs[i], fmt::format("runs[{}]", i));
  return std::move(document.runs);
}

/// Drops the data that a comparison doesn't show; keeps only the last step's samples.
void reduce(RunReport& run) {
  run.handlers.clear();
  std::int64_t last = 0;
  for (const auto& sample : run.samples) last = std::max(last, sample.step);
  std::erase_if(run.samples, [&](const ReportSample& sample) { return sample.step != last; });
  std::erase_if(run.marks, [](const ReportMark& mark) { return mark.kind == ReportMarkKind::saved; });
}

}  // namespace

}  // namespace detail

std::vector<RunReport> read_report(const std::filesystem::path& page) {
  std::error_code ignored;
  const auto file = std::filesystem::is_directory(page, ignored) ? page / "report.html" : page;
  const MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  if (bytes.size() > detail::most_report_bytes)
    throw ArgumentError(fmt::format("{} has {} bytes: a page of a training has at most {}", file.string(),
                                    bytes.size(), detail::most_report_bytes));
  try {
    return detail::runs_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("{}: {}", file.string(), error.what()));
  }
}

void write_comparison(const std::filesystem::path& page, const std::vector<std::filesystem::path>& runs,
                      FileSystem& files) {
  std::vector<RunReport> all;
  std::set<std::string> names;
  for (const auto& path : runs)
    for (auto& run : read_report(path)) {
      detail::reduce(run);
      const auto name = run.name;
      for (int number = 2; !names.insert(run.name).second; ++number)
        run.name = fmt::format("{} ({})", name, number);
      all.push_back(std::move(run));
    }
  if (all.empty()) throw ArgumentError("runs is empty: must have at least one page or folder");
  write_file(files, page, detail::run_page(all, fmt::format("{} runs", all.size())));
}

}  // namespace etude::inline v0
