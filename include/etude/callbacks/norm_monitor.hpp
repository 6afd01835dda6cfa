#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "etude/callbacks/interval_timer.hpp"
#include "etude/events.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/interval.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// How fine the norms are that a monitor logs: the `global` one, one for each `layer` (the module that a
/// parameter belongs to) beside it, or one for each `parameter`.
ETUDE_ENUM(NormDetail, global, layer, parameter);

namespace detail {

/// Logs L2 norms of the model's parameters or their gradients, which it finds by name once a training. What
/// it logs are tensors, so nobody waits for a device.
class NormLogger {
 public:
  enum class What { parameters, gradients };

  NormLogger() = default;
  explicit NormLogger(What what) : what_(what) {}

  /// Throws ArgumentError for an interval that can't pass.
  void begin(const Context& e, IntervalTimer& timer, const Interval& every_n_steps);
  void log(const Context& e, NormDetail norm_detail);
  void end() { *this = NormLogger(what_); }

 private:
  void log_layers(const Context& e) const;
  std::string prefix() const;

  What what_ = What::parameters;
  std::vector<std::pair<std::string, at::Tensor>> parameters_;  // by what their norm is logged under
  std::vector<std::string> layers_;                             // likewise, of each parameter
  std::vector<at::Tensor> now_;
};

}  // namespace detail

/// Logs the L2 norms of the gradients as they are before clipping, every `every_n_steps` update steps:
/// `l2_norm/grad/global` and, as `norm_detail` says, `l2_norm/grad/NAME` for each layer or parameter. Names
/// and interval are those of Composer's OptimizerMonitor, which sees the gradients after clipping; so does
/// ClippedGradientNormMonitor. A log has the mean over the steps since the last one. In between it costs
/// nothing, and it leaves the trainer the way of clipping that is fastest. After an interval in another unit,
/// such as "1ep", it looks at the first step behind it. Throws ArgumentError for one that can't pass.
struct GradientNormMonitor {
  using this_callback = GradientNormMonitor;
  ETUDE_STRUCT(GradientNormMonitor,
               (NormDetail, norm_detail, "global norm, or also those of each layer or parameter",
                NormDetail::global),
               (Interval, every_n_steps, "update steps from one look to the next, or another interval", 10),
               (IntervalTimer, timer, "what has passed of it"));

  void on(const TrainBegin& e) { norms.begin(e, timer, every_n_steps); }
  void on(const GradientsComplete& e) {
    if (timer.due_in_step(e, every_n_steps)) norms.log(e, norm_detail);
  }
  void on(const TrainEnd&) { norms.end(); }

  detail::NormLogger norms{detail::NormLogger::What::gradients};  ///< what it looks at
};

/// Logs the same as GradientNormMonitor of the gradients that the optimizer is given, so after clipping.
/// The trainer then clips in a pass of its own.
struct ClippedGradientNormMonitor {
  using this_callback = ClippedGradientNormMonitor;
  ETUDE_STRUCT(ClippedGradientNormMonitor,
               (NormDetail, norm_detail, "global norm, or also those of each layer or parameter",
                NormDetail::global),
               (Interval, every_n_steps, "update steps from one look to the next, or another interval", 10),
               (IntervalTimer, timer, "what has passed of it"));

  void on(const TrainBegin& e) { norms.begin(e, timer, every_n_steps); }
  void on(const PreOptimizerStep& e) {
    if (timer.due_in_step(e, every_n_steps)) norms.log(e, norm_detail);
  }
  void on(const TrainEnd&) { norms.end(); }

  detail::NormLogger norms{detail::NormLogger::What::gradients};  ///< what it looks at
};

/// Logs the L2 norms of the parameters, every `every_n_steps` update steps: `l2_norm/param/global` and, as
/// `norm_detail` says, `l2_norm/param/NAME` for each layer or parameter; frozen ones count. Named as in
/// Composer's OptimizerMonitor. A log has the mean over the steps since the last one.
struct ParameterNormMonitor {
  using this_callback = ParameterNormMonitor;
  ETUDE_STRUCT(ParameterNormMonitor,
               (NormDetail, norm_detail, "global norm, or also those of each layer or parameter",
                NormDetail::global),
               (Interval, every_n_steps, "update steps from one look to the next, or another interval", 10),
               (IntervalTimer, timer, "what has passed of it"));

  void on(const TrainBegin& e) { norms.begin(e, timer, every_n_steps); }
  void on(const StepEnd& e) {
    if (timer.due(e, every_n_steps)) norms.log(e, norm_detail);
  }
  void on(const TrainEnd&) { norms.end(); }

  detail::NormLogger norms{detail::NormLogger::What::parameters};  ///< what it looks at
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/norm_monitor.ipp"
#endif
