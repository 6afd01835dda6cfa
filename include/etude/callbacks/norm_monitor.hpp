#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "etude/callbacks/interval_timer.hpp"
#include "etude/events.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/interval.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Which norms a monitor logs: always the `global` norm, and optionally one for each `layer` (the module that
/// a parameter belongs to) or each `parameter`.
ETUDE_ENUM(NormDetail, global, layer, parameter);

namespace detail {

/// Logs L2 norms of the model's parameters or their gradients. It looks the parameters up by name once per
/// training, and logs tensors, so nothing waits for a device.
class NormLogger {
 public:
  ETUDE_STRUCT(NormLogger, (IntervalTimer, timer, "the elapsed part of every_n_steps"));

  enum class What { parameters, gradients };

  explicit NormLogger(What what) : what_(what) {}

  /// Throws ArgumentError for an invalid interval.
  void begin(const Context& e, NormDetail norm_detail, const Interval& every_n_steps);
  void log(const Context& e) const;
  void end();

 private:
  What what_;
  std::vector<at::Tensor> parameters_;
  // The name of each logged norm, and the indices of the parameters that it covers.
  std::vector<std::pair<std::string, std::vector<std::size_t>>> groups_;
};

}  // namespace detail

/// Logs the L2 norms of the gradients before clipping, every `every_n_steps` update steps:
/// `l2_norm/grad/global` and, depending on `norm_detail`, `l2_norm/grad/NAME` for each layer or parameter.
/// The names and the interval follow Composer's OptimizerMonitor, which sees the gradients after clipping, as
/// ClippedGradientNormMonitor does. Each log has the mean of the norms measured since the last log. Between
/// measurements it costs nothing, and the trainer can still use its fastest way of clipping. With an interval
/// in another unit, such as "1ep", it measures the first step after the interval. Throws ArgumentError for an
/// invalid interval.
struct GradientNormMonitor {
  ETUDE_STRUCT(GradientNormMonitor,
               (NormDetail, norm_detail, "global norm, or also those of each layer or parameter",
                NormDetail::global),
               (Interval, every_n_steps, "update steps between measurements, or another interval", 10));

  void on(const TrainBegin& e) { state.begin(e, norm_detail, every_n_steps); }
  void on(const GradientsComplete& e) {
    if (state.timer.due_in_step(e, every_n_steps)) state.log(e);
  }
  void on(const TrainEnd&) { state.end(); }

  using State = detail::NormLogger;
  State state{detail::NormLogger::What::gradients};
};

/// Logs the same as GradientNormMonitor, but for the gradients after clipping, which the optimizer receives.
/// The trainer then clips in a separate pass.
struct ClippedGradientNormMonitor {
  ETUDE_STRUCT(ClippedGradientNormMonitor,
               (NormDetail, norm_detail, "global norm, or also those of each layer or parameter",
                NormDetail::global),
               (Interval, every_n_steps, "update steps between measurements, or another interval", 10));

  void on(const TrainBegin& e) { state.begin(e, norm_detail, every_n_steps); }
  void on(const PreOptimizerStep& e) {
    if (state.timer.due_in_step(e, every_n_steps)) state.log(e);
  }
  void on(const TrainEnd&) { state.end(); }

  using State = detail::NormLogger;
  State state{detail::NormLogger::What::gradients};
};

/// Logs the L2 norms of the parameters, every `every_n_steps` update steps: `l2_norm/param/global` and,
/// depending on `norm_detail`, `l2_norm/param/NAME` for each layer or parameter, including frozen ones. The
/// names follow Composer's OptimizerMonitor. Each log has the mean of the norms measured since the last log.
struct ParameterNormMonitor {
  ETUDE_STRUCT(ParameterNormMonitor,
               (NormDetail, norm_detail, "global norm, or also those of each layer or parameter",
                NormDetail::global),
               (Interval, every_n_steps, "update steps between measurements, or another interval", 10));

  bool reads_parameters() const { return true; }

  void on(const TrainBegin& e) { state.begin(e, norm_detail, every_n_steps); }
  void on(const StepEnd& e) {
    if (state.timer.due(e, every_n_steps)) state.log(e);
  }
  void on(const TrainEnd&) { state.end(); }

  using State = detail::NormLogger;
  State state{detail::NormLogger::What::parameters};
};

}  // namespace etude::inline v0
