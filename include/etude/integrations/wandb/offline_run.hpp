#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/integrations/wandb/artifacts.hpp"
#include "etude/integrations/wandb/records.hpp"
#include "etude/integrations/wandb/transaction_log.hpp"
#include "etude/metrics/sample.hpp"

namespace etude::inline v0::detail {

/// Metrics, each name once.
using WandbValues = std::vector<std::pair<std::string, double>>;

/// The id that an unfinished run left in a file; empty if there is none.
std::string wandb_interrupted_run(const std::filesystem::path& file);

/// An offline run that is being written: the folder offline-run-TIME-ID for `wandb sync`. Metrics are on the
/// disk when the call returns; a thread makes the artifacts. Only the constructor throws: records that can't
/// be written are counted, and reported by `take_faults`.
class WandbRun {
 public:
  /// Creates the folder in `directory`. Throws ArgumentError on failure.
  WandbRun(const std::filesystem::path& directory, WandbRunInfo info);
  WandbRun(const WandbRun&) = delete;
  WandbRun& operator=(const WandbRun&) = delete;
  /// Finishes the run.
  ~WandbRun();

  const std::filesystem::path& folder() const { return folder_; }
  const WandbRunInfo& info() const { return info_; }
  std::int64_t rows() const { return rows_; }
  double seconds() const;  ///< The run's age, including the runs that it continues.

  void configure(const nlohmann::ordered_json& config);

  /// Writes row `step` of the history and updates the summary: the metrics under their names, plus `also`.
  void log(std::int64_t step, std::int64_t global_step, const WandbValues& metrics, WandbItems also = {});

  /// Writes a row with samples, each with a file in the run's folder. A sample that can't be written is left
  /// out and reported.
  void log_samples(std::int64_t step, std::int64_t global_step, const std::vector<Sample>& samples);

  /// Adds values to the summary only.
  void summarize(const WandbValues& values);

  /// The numbers of the summary so far, for an artifact's metadata.
  nlohmann::ordered_json summary_numbers() const;

  WandbArtifacts& artifacts() { return artifacts_; }

  /// Keeps the run's id in a file until the run finishes without failure.
  void keep_id_in(const std::filesystem::path& file);

  /// Writes the last record once all artifacts are made; 0 means finished, anything else failed.
  void finish(int exit_code) noexcept;

  std::int64_t lost() const;
  std::vector<std::string> take_faults();

 private:
  static std::filesystem::path make_folder(const std::filesystem::path& directory, const WandbRunInfo& info);
  void write(WandbKind kind, std::string_view message);
  void report(std::string fault);
  void define(const std::string& name);
  void link_latest() const;
  WandbRunInfo info_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::filesystem::path folder_;
  mutable std::mutex mutex_;  // guards the log and the faults
  WandbLog log_;
  std::int64_t records_ = 0;
  std::vector<std::string> faults_;
  bool has_warned_ = false;
  std::int64_t rows_ = 0;
  std::set<std::string> defined_;
  std::map<std::string, double> numbers_;
  std::filesystem::path id_file_;
  bool finished_ = false;
  WandbArtifacts artifacts_;  // last: its thread uses everything above
};

}  // namespace etude::inline v0::detail
