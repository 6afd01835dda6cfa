#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// The floating-point operations of one token of a transformer, forward and backward: 6 N + 12 L H Q T, for
/// N parameters, L layers, H heads of dimension Q and sequences of T tokens. From PaLM (Chowdhery et al.
/// 2022, arXiv:2204.02311), appendix B.
double transformer_flops_per_token(double parameters, double layers, double heads, double head_dimension,
                                   double sequence_length);

/// Measures how fast the training is, over its last `window_size` steps: Lightning's callback of this name,
/// with names after those of Composer's SpeedMonitor. Each log of training steps gets
///
/// - `throughput/batches_per_sec` (update steps), `throughput/samples_per_sec`, and
///   `throughput/tokens_per_sec` where `main_input_name` or `count_tokens` says what a token is;
/// - `throughput/flops_per_sec` with `flops_per_sample`, and with `peak_flops` besides `throughput/mfu`,
///   the model-FLOPs utilisation of PaLM, appendix B: the operations that the model needs (none that are
///   done twice to save memory) by those that the device could have done in that time;
/// - `time/data_wait` and `time/compute`: the seconds of a step in which it waited for the loader, and the
///   others; `throughput/data_wait_fraction`: the part of the former.
///
/// Evaluations, predictions and the writing of checkpoints are left out of the time; what a checkpoint that
/// is written in the background holds up is not. Unlike Lightning's, it never asks the device to finish,
/// and nobody has to pass it the size of a batch. Stands behind the callbacks that ask for logs.
///
/// Throws ArgumentError at TrainBegin for numbers out of range; DataError where a batch has no input
/// `main_input_name`.
struct ThroughputMonitor {
  using this_callback = ThroughputMonitor;
  ETUDE_STRUCT(ThroughputMonitor, (std::int64_t, window_size, "update steps to measure over", 100),
               (double, flops_per_sample, "operations of one example, forward and backward; 0: unknown", 0.0),
               (double, peak_flops, "operations that the device can do in a second; 0: unknown", 0.0),
               (std::string, main_input_name, "the input whose elements are tokens; empty: there are none"),
               (std::int64_t, last_logged_step, "the step of the last log that has the throughput", -1));

  void on(const TrainBegin& e);
  void on(const BatchFetchBegin&);
  void on(const BatchFetched& e);
  void on(const StepEnd& e);
  void on(const EpochEnd& e);
  void on(const Log&);
  void on(const EvaluateBegin&) { pause(); }
  void on(const PredictBegin&) { pause(); }
  void on(const EvaluateEnd&) { proceed(); }
  void on(const PredictEnd&) { proceed(); }
  void on(const Save&) { leave_out(); }
  void on(const PushBegin&) { leave_out(); }

  /// Counts the tokens of a batch instead of `main_input_name`.
  std::function<std::int64_t(const Batch&)> count_tokens = {};

  /// What there was since training began.
  struct Count {
    double seconds = 0;    ///< without evaluations and checkpoints
    double data_wait = 0;  ///< seconds of it that the loader was waited for
    double samples = 0;
    double tokens = 0;
  };
  std::vector<Count> window = {};  ///< at the end of each of the last steps, in a ring
  Count now = {};                  ///< with the step under way

  /// What the clock is doing.
  struct Watch {
    std::chrono::steady_clock::time_point mark = {};  ///< up to where time has been counted
    bool runs = false;
    bool waits = false;  ///< for the loader
    std::int64_t steps = 0;
  };
  Watch watch = {};

 private:
  void pause();
  void proceed();
  void leave_out();
  void advance();
  void log(const Context& e) const;
  const Count& at_end_of(std::int64_t step) const;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/throughput.ipp"
#endif
