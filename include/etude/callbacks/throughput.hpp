#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// The floating-point operations per token of a transformer, forward and backward: 6 N + 12 L H Q T, for N
/// parameters, L layers, H heads of dimension Q and sequences of T tokens. From PaLM (Chowdhery et al. 2022,
/// arXiv:2204.02311), appendix B.
double transformer_flops_per_token(double parameters, double layers, double heads, double head_dimension,
                                   double sequence_length);

/// Measures the training's speed over its last `window_size` steps. Follows Lightning's callback of this
/// name; the names follow Composer's SpeedMonitor. Each log of training steps gets
///
/// - `throughput/batches_per_sec` (update steps), `throughput/samples_per_sec`, and
/// `throughput/tokens_per_sec` if `main_input_name` or `count_tokens` defines tokens;
/// - `throughput/flops_per_sec` with `flops_per_sample`, and with `peak_flops` also `throughput/mfu`, the
/// model-FLOPs utilisation of PaLM, appendix B: the operations that the model needs (not counting operations
/// repeated to save memory) divided by the operations that the device could have done in that time;
/// - `time/data_wait` and `time/compute`: the seconds of a step spent waiting for the loader, and the rest;
/// `throughput/data_wait_fraction`: the fraction spent waiting.
///
/// The time excludes evaluations, predictions and the writing of checkpoints, but includes delays caused by a
/// checkpoint that is written in the background. Unlike Lightning's, this callback never waits for the
/// device, and needs no batch size. Put it after the callbacks that request logs.
///
/// Throws ArgumentError at TrainBegin for numbers out of range; DataError if a batch has no input
/// `main_input_name`.
struct ThroughputMonitor {
  ETUDE_STRUCT(ThroughputMonitor,
               (std::int64_t, window_size, "update steps to measure over" | at_least(1), 100),
               (double, flops_per_sample,
                "operations per example, forward and backward; 0: unknown" | at_least(0), 0.0),
               (double, peak_flops, "operations per second of the device; 0: unknown" | at_least(0), 0.0),
               (std::string, main_input_name, "the input whose elements are tokens; empty: none"));

  struct State {
    ETUDE_STRUCT(State, (std::int64_t, last_logged_step, "step of the last log with the throughput", -1));
  };
  State state = {};

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

  /// Counts since training began.
  struct Count {
    double seconds = 0;    ///< without evaluations and checkpoints
    double data_wait = 0;  ///< seconds of that time spent waiting for the loader
    double samples = 0;
    double tokens = 0;
  };
  std::vector<Count> window = {};  ///< at the end of each of the last steps, as a ring buffer
  Count now = {};                  ///< including the current step

  /// The state of the clock.
  struct Watch {
    std::chrono::steady_clock::time_point mark = {};  ///< the time up to which seconds are counted
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

}  // namespace etude::inline v0
