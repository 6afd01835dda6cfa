#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/report/run_report.hpp"
#include "etude/report/series.hpp"

namespace etude::inline v0::detail {

/// Collects the data for a training's page, in bounded memory however long the training runs.
class RunRecorder {
 public:
  /// The limits for all series together; with many series, each keeps fewer points.
  static constexpr std::size_t most_series = 500, most_points = 2000, most_points_of_all = 100'000,
                               most_marks = 500, most_text = 20'000;

  RunReport run;  ///< The run without its series.

  /// Adds values to their series; entries NAME_0_0, NAME_0_1, ... for all classes make a confusion matrix.
  /// The log that ends a training (`train_runtime`, and no `loss`) is its summary. Logs that follow it at the
  /// same step aren't added to the training's curves.
  void log(std::int64_t step, std::span<const std::pair<std::string, double>> logs);

  /// Adds a mark. If there are too many, the oldest after the first are dropped.
  void mark(ReportMarkKind kind, std::int64_t step, double time, std::string_view text);

  /// Adds a sample, and keeps only those of the last `kept_steps` steps, up to `kept_bytes` bytes.
  void add(ReportSample sample, std::size_t kept_steps, std::size_t kept_bytes);

  /// Copies the data that a log history lacks from an earlier page of the same training, up to a step.
  void take(const RunReport& earlier, std::int64_t last_step);

  /// The last value of a series; 0 if there is none.
  double last(const std::string& name) const;

  /// The run with its series, in the order in which they were first logged.
  RunReport report() const;

 private:
  void add(std::int64_t step, const std::string& name, double value);
  std::size_t points_each() const;

  std::vector<std::pair<std::string, Series>> series_;
  std::map<std::string, std::size_t, std::less<>> places_;
  std::set<std::string> left_out_;
  std::optional<std::int64_t> summed_up_at_;
};

}  // namespace etude::inline v0::detail
