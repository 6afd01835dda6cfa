#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "etude/events.hpp"
#include "etude/libtorch/memory_usage.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Adds the memory in use to each log of training steps. Follows Composer's MemoryMonitor, with the same
/// names, in gigabytes (10^9 bytes). Always logs `memory/resident_mem` and `memory/peak_resident_mem` of this
/// process. If the model is on a device whose allocator has statistics (CUDA, since LibTorch 2.9), it also
/// logs `memory/current_allocated_mem`, `memory/peak_allocated_mem`, `memory/current_reserved_mem` and
/// `memory/peak_reserved_mem`. Never waits for the device. Put it after the callbacks that request logs.
struct DeviceMemoryMonitor {
  struct State {
    ETUDE_STRUCT(State, (std::int64_t, last_logged_step, "step of the last log with memory values", -1));
  };
  State state = {};

  void on(const TrainBegin& e) {
    if (e.state.global_step == 0) state = {};
  }
  void on(const StepEnd& e);
  void on(const EpochEnd& e);
};

/// Measures how much memory changes, in bytes, during each training, evaluation and prediction, and adds that
/// to its metrics, under the names that Hugging Face's Trainer uses.
///
/// - `train_mem_cpu_alloc_delta`: the change in the process's memory from beginning to end;
/// `train_mem_cpu_peaked_delta`: how far the peak in between was above the end;
/// - `train_mem_gpu_alloc_delta`, `train_mem_gpu_peaked_delta`: the same for the model's device, if
/// DeviceMemoryMonitor supports it;
/// - the same names with `eval`, `test` or another prefix for evaluations and predictions;
/// - the same names with `init`, in the first metrics and in each training's metrics: the changes from the
/// construction of the callback to the end of the trainer's construction, with `before_init_mem_cpu` and
/// `before_init_mem_gpu`, the memory in use before.
///
/// An evaluation during training gets no memory metrics. Unlike Hugging Face's, this callback needs no
/// sampling thread, because the system records the peak. Where the peak can't be reset (macOS), only a new
/// maximum is noticed. The training's memory metrics are also logged.
struct MemoryMetricsCallback {
  void on(const InitEnd& e);
  void on(const TrainBegin& e);
  void on(Log& e);
  void on(const TrainEnd&);
  void on(const EvaluateBegin& e) { begin_outside(e, e.metric_key_prefix); }
  void on(const PredictBegin& e) { begin_outside(e, e.metric_key_prefix); }
  void on(Evaluate& e) { add_to(e.metrics, e); }
  void on(Predict& e) { add_to(e.metrics, e); }
  void on(const EvaluateEnd&) { end_outside(); }
  void on(const PredictEnd&) { end_outside(); }

  /// The memory in use at one moment.
  struct Amount {
    std::int64_t cpu = 0;
    std::optional<std::int64_t> gpu = {};
  };
  /// The changes during a stage.
  struct Deltas {
    Amount allocated, peaked;
  };

  Amount before_init = {.cpu = resident_memory()};
  Deltas init = {};
  bool reports_init = false;
  std::string stage = {};  ///< the stage being measured; empty: none
  Amount at_begin = {};
  std::int64_t peak_before = 0;  ///< the process's earlier peak, if it can't be reset
  bool is_training = false;

 private:
  void begin(const Context& e, std::string_view name);
  void begin_outside(const Context& e, std::string_view name);
  void end_outside();
  Deltas measure(const Context& e) const;
  void add_to(Metrics& metrics, const Context& e);
  static Amount now(const Context& e);
};

}  // namespace etude::inline v0
