#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/integrations/wandb/artifacts.hpp"
#include "etude/integrations/wandb/records.hpp"
#include "etude/integrations/wandb/transaction_log.hpp"

namespace etude::detail {

/// Metrics, each name once.
using WandbValues = std::vector<std::pair<std::string, double>>;

/// The id that a run which wasn't finished has left in a file; empty if none has.
std::string wandb_interrupted_run(const std::filesystem::path& file);

/// An offline run that is being written: the folder offline-run-TIME-ID that `wandb sync` takes. Metrics are
/// on the disk when the call returns; artifacts follow in a thread of their own. Nothing but the constructor
/// throws: what can't be written is counted, and told by `take_faults`.
class WandbRun {
 public:
  /// Makes the folder in `directory`. Throws ArgumentError where it can't.
  WandbRun(const std::filesystem::path& directory, WandbRunFacts facts);
  WandbRun(const WandbRun&) = delete;
  WandbRun& operator=(const WandbRun&) = delete;
  /// Finishes it.
  ~WandbRun();

  const std::filesystem::path& folder() const { return folder_; }
  const WandbRunFacts& facts() const { return facts_; }
  std::int64_t rows() const { return rows_; }
  double seconds() const;  ///< Its age, with that of the runs that it goes on with.

  void configure(const nlohmann::ordered_json& config);

  /// A row of the history, `step` its number, and the summary that it brings: the metrics under their names,
  /// and those that `also` has.
  void log(std::int64_t step, std::int64_t global_step, const WandbValues& metrics, WandbItems also = {});

  /// Values for the summary alone.
  void summarize(const WandbValues& values);

  /// Numbers of the summary so far, for an artifact's metadata.
  nlohmann::ordered_json summary_numbers() const;

  WandbArtifacts& artifacts() { return artifacts_; }

  /// Keeps its id in a file until it is finished and hasn't failed.
  void keep_id_in(const std::filesystem::path& file);

  /// Writes the last record, when all artifacts are there; for the run to be finished (0) or failed.
  void finish(int exit_code) noexcept;

  std::int64_t lost() const;
  std::vector<std::string> take_faults();

 private:
  static std::filesystem::path make_folder(const std::filesystem::path& directory,
                                           const WandbRunFacts& facts);
  void write(WandbKind kind, std::string_view message);
  void tell(std::string fault);
  void define(const std::string& name);
  void link_latest() const;
  WandbRunFacts facts_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::filesystem::path folder_;
  mutable std::mutex mutex_;  // of the log and the faults
  WandbLog log_;
  std::int64_t records_ = 0;
  std::vector<std::string> faults_;
  bool told_lost_ = false;
  std::int64_t rows_ = 0;
  std::set<std::string> defined_;
  std::map<std::string, double> numbers_;
  std::filesystem::path id_file_;
  bool finished_ = false;
  WandbArtifacts artifacts_;  // the last: its thread uses all of these
};

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/wandb/impl/run.ipp"
#endif
