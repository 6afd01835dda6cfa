#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "etude/integrations/codecarbon/callback.hpp"
#include "etude/integrations/codecarbon/emissions_file.hpp"
#include "etude/integrations/codecarbon/energy_meter.hpp"
#include "etude/integrations/codecarbon/intensity.hpp"
#include "etude/io/own_threads.hpp"

namespace etude::detail {

/// What the row of a run has of its totals.
EmissionsTotals totals_of(const EmissionsRow& row);

/// 36 characters that nobody else has: a UUID of version 4.
std::string random_uuid();

/// The measurement of one training: a thread of its own, and a row of the file. A child made by fork()
/// measures and writes nothing: that is its parent's.
class EmissionsRun {
 public:
  /// `options` are complete. Goes on from `before`, or from the row of `run_id` if that has come further.
  /// Throws ArgumentError where the file can't be written.
  EmissionsRun(CodeCarbonCallback options, std::string run_id, const EmissionsTotals& before);
  EmissionsRun(const EmissionsRun&) = delete;
  EmissionsRun& operator=(const EmissionsRun&) = delete;
  ~EmissionsRun();

  /// Measures here and now.
  EmissionsTotals measure();
  /// As of the last measurement.
  EmissionsTotals totals() const;
  /// Measures a last time, and writes the row; nothing is measured afterwards.
  void finish();

  bool log_always() const { return options_.log_always.value_or(false); }

  /// How things are measured, in words.
  std::string description() const;
  /// What became of it, in words.
  std::string outcome() const;
  /// Faults that weren't told yet, each once.
  std::vector<std::string> take_faults();

 private:
  void run();
  void write() noexcept;
  EmissionsRow row(const EmissionsTotals& totals) const;
  void tell(const std::string& fault);
  /// None in a child made by fork(): a thread that isn't there may have the mutex for ever.
  std::unique_lock<std::mutex> locked(std::mutex& mutex) const;

  ForkMark mark_;
  CodeCarbonCallback options_;
  CarbonIntensity intensity_;
  std::optional<EmissionsFile> file_;
  EmissionsRow facts_;              // those columns of the row that stay
  mutable std::mutex meter_mutex_;  // not the other, which logs wait for: to measure may take long
  EnergyMeter meter_;
  mutable std::mutex mutex_;  // of all below
  EmissionsTotals totals_;
  std::set<std::string> told_;
  std::vector<std::string> faults_;
  bool is_written_ = false;
  bool stops_ = false, is_finished_ = false;
  ThreadShared<std::condition_variable> changed_ = make_thread_shared<std::condition_variable>();
  ThreadShared<std::thread> thread_;  // the last: it uses all of these
};

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/codecarbon/impl/emissions_run.ipp"
#endif
