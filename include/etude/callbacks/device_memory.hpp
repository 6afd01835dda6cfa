#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "etude/events.hpp"
#include "etude/libtorch/device_memory.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Logs how much memory there is in use, with each log of training steps: Composer's MemoryMonitor, whose
/// names and gigabytes (of 10^9 bytes) these are. Where the model is on a device whose allocator has
/// statistics (CUDA, since LibTorch 2.9): `memory/current_allocated_mem`, `memory/peak_allocated_mem`,
/// `memory/current_reserved_mem`, `memory/peak_reserved_mem`. Always, of this process:
/// `memory/resident_mem`, `memory/peak_resident_mem`. Nobody waits for the device. Stands behind the
/// callbacks that ask for logs.
struct DeviceMemoryMonitor {
  using this_callback = DeviceMemoryMonitor;
  ETUDE_STRUCT(DeviceMemoryMonitor,
               (std::int64_t, last_logged_step, "the step of the last log that has the memory", -1));

  void on(const TrainBegin& e) {
    if (e.state.global_step == 0) last_logged_step = -1;
  }
  void on(const StepEnd& e);
  void on(const EpochEnd& e);
};

/// Adds to the metrics of training, evaluation and prediction what each has done to the memory, in bytes:
/// the memory metrics of Hugging Face's Trainer, under its names.
///
/// - `train_mem_cpu_alloc_delta`: of the process, at the end less at the beginning;
///   `train_mem_cpu_peaked_delta`: how far it was above its end in between;
/// - `train_mem_gpu_alloc_delta`, `train_mem_gpu_peaked_delta`: the same of the device that the model is
///   on, where DeviceMemoryMonitor has it;
/// - the same with `eval`, `test`, or whatever prefix the metrics have, and, in the first of them and in
///   those of each training, with `init`: from when the callback was made to the end of the trainer's
///   construction, beside `before_init_mem_cpu` and `before_init_mem_gpu`.
///
/// An evaluation in the middle of training has no memory of its own. Unlike Hugging Face's no thread looks
/// at the clock: the system keeps the peak. Where it can't begin anew (macOS), a peak below one of before
/// counts as none. The metrics of training are logged, too.
struct MemoryMetricsCallback {
  using this_callback = MemoryMetricsCallback;
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

  /// What there was at one moment.
  struct Amount {
    std::int64_t cpu = 0;
    std::optional<std::int64_t> gpu = {};
  };
  /// What a stage has done.
  struct Deltas {
    Amount allocated, peaked;
  };

  Amount before_init = {.cpu = resident_memory()};
  Deltas init = {};
  bool tells_init = false;
  std::string stage = {};  ///< what is measured; empty: nothing
  Amount at_begin = {};
  std::int64_t peak_before = 0;  ///< of the process, where it doesn't begin anew
  bool is_training = false;

 private:
  void begin(const Context& e, std::string_view name);
  void begin_outside(const Context& e, std::string_view name);
  void end_outside();
  Deltas measure(const Context& e) const;
  void add_to(Metrics& metrics, const Context& e);
  static Amount now(const Context& e);
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/device_memory.ipp"
#endif
