#pragma once

#ifndef ETUDE_WANDB
#error "etude/integrations/wandb.hpp needs a library: link etude::wandb"
#endif

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/integrations/shared/not_copied.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Writes a run that `wandb sync` uploads to Weights & Biases, without Python. Names, keys, variables and
/// artifacts match Hugging Face's WandbCallback: arguments and `config` become the run's config; each log
/// becomes a row of the history under `train/...`, `eval/...`, `test/...` with `train/global_step` as the
/// axis; `train_runtime`, `train_loss` and the like appear only in the summary; metrics of predictions are a
/// row, too. NaN and infinities are preserved.
///
/// Samples are rows with wandb.Image, wandb.Audio and, for texts, wandb.Html.
///
/// Unlike Hugging Face's callback, this one sends nothing. Whatever the mode, the run is offline, in
/// `wandb/offline-run-TIME-ID` below `dir`, and unless the mode is `offline` a warning names the command that
/// uploads it. The run's label is "etude_trainer". A training resumed from a checkpoint continues its run in
/// a second folder, to be uploaded after the first. A run is finished when the next training begins or the
/// callback is destroyed, since evaluations may follow; if the training throws, it is finished at once and
/// marked as failed, as it is after SIGTERM or SIGINT, with exit code 255. A killed process leaves a failed
/// run with all rows so far.
///
/// `log_model` "end" makes an artifact of the model when training ends; "checkpoint" also makes one of each
/// checkpoint. Artifacts are copies (hard links if WANDB_DIR is on the checkpoints' disk), because `wandb
/// sync` removes the files that it has uploaded, and a thread hashes them. `watch` adds histograms of
/// gradients, before clipping, or parameters or both to a row every max(100, logging_steps) steps.
///
/// An empty option is taken from its variable; `mode`, `entity` and `project` then from wandb's settings
/// files. In a sweep, `id`, `project` and `entity` are the sweep's. Logs in the first process only. A trial
/// of a search is a run with the trial's name and hyperparameters, in the search's group. Throws
/// ArgumentError for wrong options and for a folder that can't be written, when training begins; later errors
/// are reported and never stop a training. Its runs were read by wandb 0.29 and 0.31, and uploaded by their
/// `wandb sync` to a test server; never to wandb.ai.
struct WandbCallback {
  ETUDE_STRUCT(WandbCallback, (std::string, project, "WANDB_PROJECT, settings, or else huggingface", ""),
               (std::string, name, "display name; empty is run_name of the arguments, then WANDB_NAME", ""),
               (std::string, entity, "owner: WANDB_ENTITY, settings", ""),
               (std::string, group, "WANDB_RUN_GROUP", ""), (std::string, job_type, "WANDB_JOB_TYPE", ""),
               (std::vector<std::string>, tags, "comma-separated in WANDB_TAGS"),
               (std::string, notes, "WANDB_NOTES", ""),
               (std::string, mode, "online, offline, disabled, shared or dryrun: WANDB_MODE, settings", ""),
               (std::string, dir, "parent of the folder wandb: WANDB_DIR, or else the working folder", ""),
               (std::string, id, "identifier of the run: WANDB_RUN_ID, or else a random one", ""),
               (std::string, resume,
                "whether to continue a run of this id: allow, must, never or auto: WANDB_RESUME", ""),
               (std::string, log_model, "end, checkpoint or false: WANDB_LOG_MODEL", ""),
               (std::string, watch, "gradients, parameters, all or false: WANDB_WATCH", ""));
  struct State {
    ETUDE_STRUCT(State, (std::string, run_id, "id of the run", ""),
                 (std::int64_t, next_step, "rows in its history so far", 0),
                 (double, run_seconds, "the run's age at its last row, in seconds", 0.0));
  };
  State state = {};
  nlohmann::ordered_json config = {};  ///< Additional run config, like Python's `model.config`.

  /// Whether `report_to` "all" includes this callback: true unless WANDB_MODE, wandb's settings or
  /// WANDB_DISABLED turn it off.
  static bool is_available();

  /// Whether it logs histograms of the parameters.
  bool reads_parameters() const;

  void on(const TrainBegin& e);
  void on(const GradientsComplete& e);
  void on(const Log& e);
  void on(const LogSamples& e);
  void on(const Predict& e);
  void on(const Save& e);
  void on(const Stop& e);
  void on(const TrainError& e);
  void on(const TrainEnd& e);

  /// The open run's folder; empty if none is open.
  std::string folder() const;

  struct Open;
  detail::NotCopied<Open> open_run = {};
  int failure = 0;  ///< The exit code of a failed training, until its end.

 private:
  void open(const Context& e);
  std::string model_name(const Context& e) const;
  bool is_open(const Context& e);
  void log(const Context& e, const Metrics& metrics);
  void end_row();
  void log_final_model(const Context& e);
  void fail(int exit_code);
  template <class Act>
  void attempt(Act act);
};

}  // namespace etude::inline v0
