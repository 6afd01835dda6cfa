#pragma once

#ifndef ETUDE_TENSORBOARD
#error "etude/integrations/tensorboard.hpp needs a library: link etude::tensorboard"
#endif

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "etude/callbacks/interval_timer.hpp"
#include "etude/events.hpp"
#include "etude/integrations/shared/not_copied.hpp"
#include "etude/reflect/interval.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

class SummaryWriter;

namespace detail {
struct TensorBoardRun;
}

/// Writes event files for TensorBoard: the metrics of every log, the arguments, the model. Uses the folder of
/// Hugging Face's TensorBoardCallback, `output_dir/runs/Nov21_09-06-38_host` or TENSORBOARD_LOGGING_DIR, and
/// its names, `train/loss`, `eval/loss`, `args`, `model_config`. In addition it writes the graph of a
/// TorchScript model or the layers of any other, histograms every `histogram_steps`, and at the end the
/// arguments with the last metrics for the HPARAMS page, in a separate run within the folder, as PyTorch's
/// `add_hparams` does.
///
/// Samples are written as pictures, sounds and texts at their step; a caption is a text under its picture's
/// or sound's tag.
///
/// A resumed training continues in its folder: a SessionLog START hides the points that are repeated, while
/// points at the checkpoint's step are kept. If the files are gone, `state.log_history` is written again. A
/// second training within the same second gets a separate folder, and so does each trial of a search.
///
/// A log is one record, written by one system call, so logs survive if the process is killed. Histograms of
/// gradients show them before clipping. The host reads them, so steps with histograms wait for the device.
/// Writes in the first process only.
///
/// Throws ArgumentError at the beginning of training, or of an earlier evaluation, for a folder that can't be
/// written and for an invalid interval. A disk that fills up later is reported and never stops a training.
struct TensorBoardCallback {
  ETUDE_STRUCT(TensorBoardCallback,
               (std::string, logging_dir,
                "folder of the run, ~ is the home folder; empty is TENSORBOARD_LOGGING_DIR, or a new one in "
                "output_dir/runs",
                ""),
               (std::optional<Interval>, histogram_steps,
                "interval between histograms of parameters and gradients, in update steps or "
                "another unit; unset is none"),
               (bool, log_graph, "write the model's graph", true),
               (bool, log_hparams, "write arguments and last metrics for the HPARAMS page", true));
  struct State {
    ETUDE_STRUCT(State,
                 (std::string, run, "the run's folder in output_dir/runs; empty if another was named", ""),
                 (double, start_time, "when the run began", 0.0),
                 (double, last_time, "when it was last written to", 0.0),
                 (IntervalTimer, histogram_timer, "the elapsed part of histogram_steps"));
  };
  State state = {};
  nlohmann::ordered_json config = {};  ///< The model's, shown as `model_config` and on the HPARAMS page.

  /// Whether `report_to=all` includes this callback: always, since it needs only a folder.
  static bool is_available() { return true; }

  bool reads_parameters() const { return histogram_steps.has_value(); }

  void on(const TrainBegin& e);
  void on(const GradientsComplete& e);
  void on(const StepEnd& e);
  void on(const Log& e);
  void on(const LogSamples& e);
  void on(const Save& e);
  void on(const Stop& e);
  void on(const TrainError& e);
  void on(const TrainEnd& e);

  /// The writer, for additional texts and histograms; null before the run is open, and outside the first
  /// process.
  SummaryWriter* writer() const;

  detail::NotCopied<detail::TensorBoardRun> open_run = {};

 private:
  void open(const Context& e, bool is_resumed);
};

}  // namespace etude::inline v0
