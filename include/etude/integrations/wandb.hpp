#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/integrations/shared/not_copied.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Writes a run that `wandb sync` uploads to Weights & Biases, from C++ alone. Names, keys, variables and
/// artifacts are those of Hugging Face's WandbCallback: arguments and `config` as the run's config, each log
/// as a row of the history under `train/...`, `eval/...`, `test/...` with `train/global_step` as the axis;
/// `train_runtime`, `train_loss` and the like in the summary alone; predictions' metrics as a row, too. NaN
/// and infinities stay what they are.
///
/// What differs: nothing is sent. The run is an offline one, `wandb/offline-run-TIME-ID` in `dir`, whatever
/// the mode, and unless that is `offline` a warning says which command uploads it. The label is
/// "etude_trainer". A training that is resumed from a checkpoint goes on in its run, in a folder of its own
/// that is uploaded after the first. A run is finished when the next training begins or the callback is
/// destroyed, since evaluations may come behind; at once when the training throws, which makes it a failed
/// one, or ends by SIGTERM or SIGINT, with exit code 255. A process that is killed leaves a failed run with
/// all rows up to then.
///
/// `log_model` "end" makes an artifact of the model when training ends, "checkpoint" of each checkpoint, too:
/// of copies (hard links where WANDB_DIR is on the checkpoints' disk), hashed in a thread of their own, since
/// `wandb sync` removes the files that it has uploaded. `watch` adds histograms of gradients, before
/// clipping, or parameters or all of them to a row every max(100, logging_steps) steps.
///
/// An option that is left empty is what its variable says; `mode`, `entity` and `project` are behind that
/// what wandb's settings files say. In a sweep, `id`, `project` and `entity` are the sweep's. Speaks in the
/// first process only. Throws ArgumentError for wrong options and for a folder that can't be written, when
/// training begins; later faults are told, and never stop a training. Read back by wandb 0.29 and 0.31, and
/// uploaded by their `wandb sync` to a server of the tests; not tried against wandb.ai.
struct WandbCallback {
  using this_callback = WandbCallback;
  ETUDE_STRUCT(WandbCallback, (std::string, project, "WANDB_PROJECT, settings, or else huggingface", ""),
               (std::string, name, "shown name; empty is run_name of the arguments, then WANDB_NAME", ""),
               (std::string, entity, "who owns it: WANDB_ENTITY, settings", ""),
               (std::string, group, "WANDB_RUN_GROUP", ""), (std::string, job_type, "WANDB_JOB_TYPE", ""),
               (std::vector<std::string>, tags, "WANDB_TAGS, with commas between them"),
               (std::string, notes, "WANDB_NOTES", ""),
               (std::string, mode, "online, offline, disabled, shared or dryrun: WANDB_MODE, settings", ""),
               (std::string, dir, "folder that gets the folder wandb: WANDB_DIR, or else the working one",
                ""),
               (std::string, id, "identifier of the run: WANDB_RUN_ID, or else a random one", ""),
               (std::string, resume,
                "whether to go on with a run of this id: allow, must, never or auto: WANDB_RESUME", ""),
               (std::string, log_model, "end, checkpoint or false: WANDB_LOG_MODEL", ""),
               (std::string, watch, "gradients, parameters, all or false: WANDB_WATCH", ""),
               (std::string, run_id, "the run that this one is", ""),
               (std::int64_t, next_step, "rows of its history so far", 0),
               (double, run_seconds, "how old it was at the last of them", 0.0));
  nlohmann::ordered_json config = {};  ///< More of the run's config: what Python's `model.config` would be.

  /// Whether `report_to` "all" takes it: unless WANDB_MODE, wandb's settings or WANDB_DISABLED switch it off.
  static bool is_available();

  void on(const TrainBegin& e);
  void on(const GradientsComplete& e);
  void on(const Log& e);
  void on(const Predict& e);
  void on(const Save& e);
  void on(const Stop& e);
  void on(const TrainError& e);
  void on(const TrainEnd& e);

  /// The folder of the run that is open; empty if none is.
  std::string folder() const;

  struct Open;
  detail::NotCopied<Open> open_run = {};
  int failure = 0;  ///< Exit code of a training that went wrong, until its end.

 private:
  void open(const Context& e);
  std::string model_name(const Context& e) const;
  void log(const Context& e, const Metrics& metrics);
  void log_final_model(const Context& e);
  void fail(int exit_code);
  template <class Act>
  void attempt(Act act);
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/integrations/impl/wandb.ipp"
#endif
