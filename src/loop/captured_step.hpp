#pragma once

#include <torch/types.h>

#include <optional>

#include "etude/base/function_ref.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/step_graph.hpp"
#include "optimizer_steps.hpp"

namespace etude::inline v0 {

/// With `cuda_graph`, a batch and its update as one graph of the device.
class CapturedStep {
 public:
  explicit CapturedStep(EventSource& events)
      : events_(events),
        run_(events.core()),
        trained_(events.core()),
        log_window_(events.core().log_window) {}

  explicit operator bool() const { return graph_.has_value(); }

  /// Called once the optimizer exists.
  void begin();

  /// Makes the step of `batch`: `run(batch)` adds its loss and gradients to the group.
  void step(const Batch& batch, OptimizerSteps& steps, detail::FunctionRef<void(Batch&)> run);

 private:
  /// Throws ArgumentError for a callback that would not be called when a step is replayed.
  void check_events();

  EventSource& events_;
  const RunSettings& run_;
  Trained& trained_;
  LogWindow& log_window_;
  std::optional<StepGraph> graph_;
};

}  // namespace etude::inline v0
