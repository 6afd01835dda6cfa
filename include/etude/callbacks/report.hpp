#pragma once

#ifndef ETUDE_REPORT
#error "etude/callbacks/report.hpp needs a library: link etude::report"
#endif

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/report/run_recorder.hpp"
#include "etude/report/run_report.hpp"

namespace etude::inline v0 {

/// Writes a page about the training, `output_dir/report.html`, which opens in any browser without a network
/// and is updated while the training runs: curves of all logged values, the best model, speed, memory, time
/// by activity, samples, confusion matrices, arguments, and the events with their handlers. docs/report.md
/// shows it. `write_comparison` puts several runs on one page.
///
/// The page is written when something is logged, but at most every `seconds` and in less than 1 % of the
/// time, and again at the end, whether the training finished, was stopped or failed. It is replaced
/// atomically. Its size is bounded: in a long training, each point shows the mean and the extremes of many
/// steps. A resumed training continues the page, and steps that it repeats appear once. The first process
/// writes the page; the state of the other processes is updated at evaluations and at the end of an epoch.
///
/// Logs named like `eval_confusion_0_1`, which metrics::ConfusionMatrix makes, are drawn as a matrix. Throws
/// ArgumentError at TrainBegin if the page can't be written; a later failure is only reported.
struct ReportCallback {
  static constexpr bool runs_last = true;  ///< so that it sees the changes of other callbacks
  ETUDE_STRUCT(ReportCallback, (std::string, path, "the page, relative to output_dir", "report.html"),
               (std::string, title, "its title; empty: run_name, or the name of output_dir"),
               (double, seconds, "least time between two versions of the page" | at_least(0), 5.0),
               (std::int64_t, sample_steps, "latest steps whose samples are shown" | at_least(0), 5),
               (std::int64_t, sample_bytes, "limit of all samples on the page" | at_least(0), 4'000'000),
               (std::vector<std::string>, class_names, "the classes of confusion matrices"));

  struct State {
    ETUDE_STRUCT(State, (std::string, run_id, "of the training whose page it is"),
                 (double, elapsed, "seconds of that training up to the last log", 0.0));
  };
  State state = {};

  /// Shows the curve of a learning-rate range test, the result of `find_learning_rate(trainer)`.
  template <class Curve>
    requires requires(const Curve& curve) {
               curve.learning_rates.size();
               curve.smoothed.size();
               curve.suggested();
             }
  void show(const Curve& curve) {
    recorder.run.learning_rates = ReportLearningRates{.learning_rates = curve.learning_rates,
                                                      .losses = curve.losses,
                                                      .smoothed = curve.smoothed,
                                                      .suggested = curve.suggested()};
  }

  void on(const TrainBegin& e);
  void on(const Log& e);
  void on(const LogSamples& e);
  void on(const EvaluateEnd& e) { gather(e); }
  void on(const EpochEnd& e) { gather(e); }
  void on(const Save& e);
  void on(const Stop& e);
  void on(const TrainError& e);
  void on(const TrainEnd& e);

  detail::RunRecorder recorder = {};

  /// The state of the clock.
  struct Watch {
    using Clock = std::chrono::steady_clock;
    Clock::time_point written = {};
    Clock::duration last_write = {};  ///< how long it took
    double began = 0;                 ///< seconds of the trainer's clock when the page began
    double before = 0;                ///< seconds of training before it was resumed
    std::int64_t first_step = 0;      ///< the step at which it began or was resumed
    double busy = 0;                  ///< seconds without evaluations and checkpoints, up to the last log
    std::int64_t last_step = 0;
  };
  Watch watch = {};
  bool is_begun = false;
  bool is_training = false;

  /// Times and final values on the page of a resumed training. They are shown until the training makes a
  /// step.
  struct Record {
    std::vector<ReportRank> ranks;
    NamedNumbers summary, afterwards;
  };
  std::optional<Record> resumed = {};

 private:
  void begin_page(const TrainBegin& e);
  bool has_trained(const Context& e) const;
  void measure(const Context& e);
  void gather(const Context& e);
  void write_if_due(const Context& e);
  void write(const Context& e);
  void write_or_report(const Context& e);
};

}  // namespace etude::inline v0
