#include "etude/integrations/codecarbon.hpp"

#include <fmt/ranges.h>

#include <memory>
#include <string_view>
#include <utility>

#include "etude/base/message.hpp"
#include "etude/callbacks/log_file.hpp"
#include "etude/callbacks/log_moment.hpp"
#include "etude/integrations/codecarbon/configuration.hpp"
#include "etude/integrations/codecarbon/emissions_run.hpp"
#include "etude/integrations/codecarbon/machine.hpp"
#include "etude/integrations/shared/tracked_run.hpp"
#include "etude/metrics/pending_logs.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

constexpr std::string_view logged_emissions = "emissions_kg", logged_energy = "energy_consumed_kwh";

/// The checkpoint of a stopped training may hold emissions for its last log; averaging them with the current
/// ones would be wrong.
void forget_logged_emissions(PendingLogs& logs) {
  auto state = logs.state();
  if (std::erase_if(state, [](const auto& entry) {
        return entry.name == logged_emissions || entry.name == logged_energy;
      }) > 0)
    logs.load_state(state);
}

}  // namespace

}  // namespace detail

bool CodeCarbonCallback::is_available() { return detail::read_cpu_times().has_value(); }

void CodeCarbonCallback::on(const TrainBegin& e) {
  open_run.reset();
  if (!e.state.is_local_process_zero) return;
  // On other machines, the loaded state is the first machine's.
  if (detail::starts_from_scratch(e.state) || state.run_id.empty() || !e.state.is_world_process_zero) {
    state.run_id = detail::random_uuid();
    state.totals = {};
    state.last_logged_step = -1;
  }
  has_logged_the_last = false;
  detail::forget_logged_emissions(e.pending_logs);
  auto configuration = detail::codecarbon_configuration();
  if (const auto search = detail::search_of(e)) {
    const std::string source = "the search";
    configuration.insert(
        {{"project_name", {search->name, source}}, {"experiment_id", {*e.state.trial_name, source}}});
  }
  auto settings = detail::codecarbon_settings(*this, configuration, e.args.output_dir);
  open_run = std::make_shared<detail::EmissionsRun>(std::move(settings.options), state.run_id, state.totals);
  state.totals = open_run->totals();
  if (!settings.without_effect.empty())
    message(e.args, LogLevel::warning, "these settings of CodeCarbon have no effect here: {}",
            fmt::join(settings.without_effect, ", "));
  message(e.args, LogLevel::info, "emissions: {}", open_run->description());
  report_faults(e);
}

void CodeCarbonCallback::on(const StepEnd& e) {
  if (open_run && open_run->log_always() && detail::log_goes_out(e, state.last_logged_step))
    log(e, open_run->totals());
}

void CodeCarbonCallback::on(const EpochEnd& e) {
  if (open_run && open_run->log_always() && detail::log_goes_out(e, state.last_logged_step))
    log(e, open_run->totals());
}

void CodeCarbonCallback::on(const Log& e) {
  if (open_run) report_faults(e);
}

// Which event comes last before the summary depends on how the training ends.
void CodeCarbonCallback::on(const TrainingRunEpochEnd& e) {
  if (e.state.global_step >= e.state.max_steps) log_the_last(e);
}
void CodeCarbonCallback::on(const Stop& e) { log_the_last(e); }
void CodeCarbonCallback::on(const TrainError& e) { log_the_last(e); }

void CodeCarbonCallback::on(SaveBegin&) {
  if (open_run) state.totals = open_run->measure();
}

void CodeCarbonCallback::on(const TrainEnd& e) {
  if (!open_run) return;
  open_run->finish();
  state.totals = open_run->totals();
  report_faults(e);
  message(e.args, LogLevel::info, "emissions: {}", open_run->outcome());
  open_run.reset();
}

void CodeCarbonCallback::log(const Context& e, const EmissionsTotals& now) const {
  e.log(detail::logged_emissions, now.emissions);
  e.log(detail::logged_energy, now.energy_consumed());
}

void CodeCarbonCallback::log_the_last(const Context& e) {
  if (open_run && !std::exchange(has_logged_the_last, true)) log(e, open_run->measure());
}

void CodeCarbonCallback::report_faults(const Context& e) {
  for (const auto& fault : open_run->take_faults())
    message(e.args, LogLevel::warning, "emissions: {}", fault);
}

}  // namespace etude::inline v0
