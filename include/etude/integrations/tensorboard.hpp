#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "etude/callbacks/interval_timer.hpp"
#include "etude/events.hpp"
#include "etude/integrations/shared/not_copied.hpp"
#include "etude/reflect/interval.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

class SummaryWriter;

namespace detail {
struct TensorBoardRun;
}

/// Writes event files for TensorBoard: the metrics of every log, the arguments, the model. Follows Hugging
/// Face's TensorBoardCallback in its folder, `output_dir/runs/Nov21_09-06-38_host` or
/// TENSORBOARD_LOGGING_DIR, and in its names, `train/loss`, `eval/loss`, `args`, `model_config`. Adds what
/// that one doesn't have: the graph of a TorchScript model or the layers of another one, histograms where
/// `histogram_steps` asks for them, and at the end the arguments with the last metrics for the HPARAMS page,
/// in a run of its own within the folder as PyTorch's `add_hparams` writes it.
///
/// A training that is resumed goes on in its folder, where the points that are done again are hidden by a
/// SessionLog START, and those at the checkpoint's own step are kept. Where the files are gone,
/// `state.log_history` is written anew. Another training within the same second has a folder of its own.
///
/// A log is one record, written by one call to the system: what was logged is there when the process is
/// killed. Histograms of gradients are of those before clipping. They are read by the host, so a device is
/// waited for in the steps that have them. Speaks in the first process only.
///
/// Throws ArgumentError where training begins, or at a first evaluation before, for a folder that can't be
/// written and for an interval that can't pass. A disk that is full later is told of and ends nothing.
struct TensorBoardCallback {
  using this_callback = TensorBoardCallback;
  ETUDE_STRUCT(TensorBoardCallback,
               (std::string, logging_dir,
                "folder of the run, ~ is the home folder; empty is TENSORBOARD_LOGGING_DIR, or a new one in "
                "output_dir/runs",
                ""),
               (std::optional<Interval>, histogram_steps,
                "from one set of histograms of parameters and gradients to the next, in update steps or "
                "another unit; unset is none"),
               (bool, log_graph, "write the model's graph", true),
               (bool, log_hparams, "write arguments and last metrics for the HPARAMS page", true),
               (std::string, run, "the run's folder in output_dir/runs; empty where another was named", ""),
               (double, start_time, "when the run began", 0.0),
               (double, last_time, "when something was written last", 0.0),
               (IntervalTimer, histogram_timer, "what has passed of histogram_steps"));
  nlohmann::ordered_json config = {};  ///< of the model: shown as `model_config`, and among the HPARAMS

  /// Whether `report_to=all` has it: it needs nothing but a folder.
  static bool is_available() { return true; }

  void on(const TrainBegin& e);
  void on(const GradientsComplete& e);
  void on(const StepEnd& e);
  void on(const Log& e);
  void on(const Save& e);
  void on(const Stop& e);
  void on(const TrainError& e);
  void on(const TrainEnd& e);

  /// To write texts and histograms of one's own into the run; null before it is open, and in other processes
  /// than the first.
  SummaryWriter* writer() const;

  detail::NotCopied<detail::TensorBoardRun> held = {};

 private:
  void open(const Context& e, bool is_resumed);
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/integrations/impl/tensorboard.ipp"
#endif
