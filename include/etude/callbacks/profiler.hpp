#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "etude/events.hpp"
#include "etude/libtorch/profiler.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Writes a trace of a span of update steps in Chrome's trace format, for chrome://tracing or Perfetto: by
/// LibTorch's profiler, as Lightning's and torchtnt's PyTorchProfiler do. Each step has its stretch there,
/// from when its batches are fetched on, under the name that PyTorch's own has, `ProfilerStep#7`; the
/// evaluations and checkpoints in between are seen, too. The trace is written when the last of the steps is
/// done, and also when training ends before, by an exception perhaps. Where LibTorch was built without
/// Kineto, it has names and times only.
///
/// Steps count from 1. A span that the training doesn't come to is told as a warning. Throws ArgumentError
/// at TrainBegin for numbers below 1 and an empty path, and Error where the file can't be written.
struct ProfilerCallback {
  using this_callback = ProfilerCallback;
  ETUDE_STRUCT(ProfilerCallback, (std::string, path, "the file, from output_dir on", "trace.json"),
               (std::int64_t, first_step, "the first update step of the trace", 2),
               (std::int64_t, num_steps, "how many update steps it has", 3),
               (bool, record_shapes, "with the shapes of each operator's inputs", false),
               (bool, profile_memory, "with what is allocated and freed", false));

  void on(const TrainBegin& e);
  void on(const BatchFetchBegin& e);
  void on(const StepEnd& e);
  void on(const EpochEnd&);
  void on(const TrainEnd& e);

  std::unique_ptr<Profiler> profiler = nullptr;    ///< while it records
  std::unique_ptr<ProfilerRange> range = nullptr;  ///< the step under way
  bool has_written = false;

 private:
  void finish(const Context& e);
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/profiler.ipp"
#endif
