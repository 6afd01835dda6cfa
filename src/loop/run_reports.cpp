#include "etude/loop/run_reports.hpp"

namespace etude::inline v0 {

RunReports::RunReports(RunSettings& run, RunPosition& position, Trained& trained)
    : log_window(run.args, run.ranks),
      log_history(position.state),
      token_counter(run.options, run.args, trained.model),
      loss_check(run.options, run.args, trained.model, trained.optimizers),
      missing_labels(run.args),
      unknown_divisor(run.args),
      checkpoint_writer(run.args, run.options.file_system) {}

void RunReports::log(std::string_view name, double value) {
  if (loss_parts)
    loss_parts->emplace_back(name, torch::scalar_tensor(value, torch::kDouble));
  else
    pending_logs.add(name, value);
}

void RunReports::log(std::string_view name, const torch::Tensor& value) {
  if (loss_parts)
    loss_parts->emplace_back(name, value);
  else
    pending_logs.add(name, value);
}

}  // namespace etude::inline v0
