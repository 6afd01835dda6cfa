#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "etude/integrations/codecarbon.hpp"
#include "etude/integrations/codecarbon/emissions_file.hpp"
#include "etude/integrations/codecarbon/energy_meter.hpp"
#include "etude/integrations/codecarbon/intensity.hpp"
#include "etude/io/own_threads.hpp"

namespace etude::inline v0::detail {

/// The totals in a run's row.
EmissionsTotals totals_of(const EmissionsRow& row);

/// A UUID of version 4: 36 characters.
std::string random_uuid();

/// Measures one training, in a separate thread, and keeps its row in the file up to date. In a child made by
/// fork(), it measures and writes nothing.
class EmissionsRun {
 public:
  /// `options` must be complete. Continues from `before`, or from the row of `run_id` if the row's totals are
  /// larger. Throws ArgumentError if the file can't be written.
  EmissionsRun(CodeCarbonCallback options, std::string run_id, const EmissionsTotals& before);
  EmissionsRun(const EmissionsRun&) = delete;
  EmissionsRun& operator=(const EmissionsRun&) = delete;
  ~EmissionsRun();

  /// Measures now.
  EmissionsTotals measure();
  /// The totals at the last measurement.
  EmissionsTotals totals() const;
  /// Measures a last time, writes the row and stops measuring.
  void finish();

  bool log_always() const { return options_.log_always.value_or(false); }

  /// The methods of measurement, as text.
  std::string description() const;
  /// The result, as text.
  std::string outcome() const;
  /// Errors that haven't been reported yet, each once.
  std::vector<std::string> take_faults();

 private:
  void run();
  void write() noexcept;
  EmissionsRow row(const EmissionsTotals& totals) const;
  void report(const std::string& fault);
  /// Locks `mutex`, except in a child made by fork(): a thread that doesn't exist there may hold it forever.
  std::unique_lock<std::mutex> locked(std::mutex& mutex) const;

  ForkMark mark_;
  CodeCarbonCallback options_;
  CarbonIntensity intensity_;
  std::optional<EmissionsFile> file_;
  EmissionsRow info_;               // the constant columns of the row
  mutable std::mutex meter_mutex_;  // separate from mutex_: logs wait for that one, and measuring is slow
  EnergyMeter meter_;
  mutable std::mutex mutex_;  // for everything below
  EmissionsTotals totals_;
  std::set<std::string> reported_;
  std::vector<std::string> faults_;
  bool is_written_ = false;
  bool stops_ = false, is_finished_ = false;
  ThreadShared<std::condition_variable> changed_ = make_thread_shared<std::condition_variable>();
  ThreadShared<std::thread> thread_;  // last: it uses everything above
};

}  // namespace etude::inline v0::detail
