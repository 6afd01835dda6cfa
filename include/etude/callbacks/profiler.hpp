#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "etude/events.hpp"
#include "etude/libtorch/torch_profiler.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Writes a trace of several update steps in Chrome's trace format, for chrome://tracing or Perfetto, with
/// LibTorch's profiler, like Lightning's and torchtnt's PyTorchProfiler. Each step is a range that begins
/// when its batches are fetched, named as in PyTorch: `ProfilerStep#7`. Evaluations and checkpoints in
/// between are recorded, too. The trace is written after the last of these steps or, if training ends
/// earlier, at its end, even after an exception. If LibTorch was built without Kineto, the trace has names
/// and times only.
///
/// Steps are counted from 1. Warns if the training doesn't reach these steps. Throws ArgumentError at
/// TrainBegin for numbers below 1 and an empty path, and Error if the file can't be written.
struct ProfilerCallback {
  ETUDE_STRUCT(ProfilerCallback, (std::string, path, "the file, relative to output_dir", "trace.json"),
               (std::int64_t, first_step, "the first update step of the trace" | at_least(1), 2),
               (std::int64_t, num_steps, "number of update steps in it" | at_least(1), 3),
               (bool, record_shapes, "record the shapes of each operator's inputs", false),
               (bool, profile_memory, "record allocations and deallocations", false));

  void on(const TrainBegin& e);
  void on(const BatchFetchBegin& e);
  void on(const StepEnd& e);
  void on(const EpochEnd&);
  void on(const TrainEnd& e);

  std::unique_ptr<Profiler> profiler = nullptr;    ///< while it records
  std::unique_ptr<ProfilerRange> range = nullptr;  ///< the current step
  bool has_written = false;

 private:
  void finish(const Context& e);
};

}  // namespace etude::inline v0
