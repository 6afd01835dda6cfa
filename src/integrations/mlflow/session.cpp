#include "etude/integrations/mlflow/session.hpp"

#include <utility>

#include "etude/base/interrupt.hpp"
#include "etude/callbacks/log_file.hpp"

namespace etude::inline v0::detail {

MLflowSession* MLflowSession::of(NotCopied<MLflowSession>& open_run, const Context& e) {
  if (!e.state.is_world_process_zero) return nullptr;
  if (!open_run) open_run = std::make_shared<MLflowSession>();
  return open_run.get();
}

void MLflowSession::begin(const TrainBegin& e, const Open& open) {
  is_training_ = true;
  has_failed_ = was_killed_ = false;
  const bool resumes = !starts_from_scratch(e.state);
  // An earlier evaluation belongs to the training's run.
  if (run_ && !has_trained_ && !resumes) return;
  has_trained_ = true;
  run_.reset();
  run_ = open(e, resumes);
}

bool MLflowSession::is_open(const Context& e, const Open& open) {
  if (!run_ && !is_training_ && !has_failed_) run_ = open(e, false);
  return run_ != nullptr;
}

void MLflowSession::log(const Context& e, const Metrics& metrics, const Open& open) {
  if (!is_open(e, open)) return;
  run_->log_metrics(metrics, e.state.global_step);
  run_->report_faults();
}

void MLflowSession::log(const LogSamples& e, const Open& open) {
  if (!is_open(e, open)) return;
  run_->log_samples(e.samples, e.state.global_step);
  run_->report_faults();
}

void MLflowSession::save(const Save& e) {
  if (run_) run_->log_checkpoint(e.checkpoint);
}

void MLflowSession::stop(const Stop& e) { was_killed_ = is_training_ && stops_for_signal(e.reason); }

void MLflowSession::fail() { has_failed_ = true; }

void MLflowSession::end() {
  if (std::exchange(is_training_, false) && run_)
    run_->end(has_failed_ ? "FAILED" : was_killed_ ? "KILLED" : "FINISHED");
  has_trained_ = true;
  has_failed_ = false;
}

}  // namespace etude::inline v0::detail
