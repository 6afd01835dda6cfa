#include "etude/callbacks/throughput.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "etude/base/error.hpp"
#include "etude/callbacks/log_moment.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

double transformer_flops_per_token(double parameters, double layers, double heads, double head_dimension,
                                   double sequence_length) {
  return 6 * parameters + 12 * layers * heads * head_dimension * sequence_length;
}

void ThroughputMonitor::on(const TrainBegin& e) {
  detail::check_fields(*this);
  if (peak_flops > 0 && flops_per_sample == 0)
    throw ArgumentError(fmt::format("peak_flops is {}: needs flops_per_sample", peak_flops));
  if (e.state.global_step == 0) state = {};
  window.assign(static_cast<std::size_t>(window_size) + 1, Count());
  now = {};
  watch = {};
}

void ThroughputMonitor::on(const BatchFetchBegin&) {
  if (watch.runs) advance();
  watch.mark = std::chrono::steady_clock::now();
  watch.runs = watch.waits = true;
  // Don't count the batches that an abandoned step has fetched.
  now.samples = at_end_of(watch.steps).samples;
  now.tokens = at_end_of(watch.steps).tokens;
}

void ThroughputMonitor::on(const BatchFetched& e) {
  if (watch.waits) {
    const double before = now.seconds;
    advance();
    now.data_wait += now.seconds - before;
    watch.waits = false;
  }
  now.samples += static_cast<double>(e.batch.size);
  if (count_tokens)
    now.tokens += static_cast<double>(count_tokens(e.batch));
  else if (!main_input_name.empty())
    now.tokens += static_cast<double>(e.batch.inputs.at(main_input_name).numel());
}

void ThroughputMonitor::on(const StepEnd& e) {
  if (watch.runs) advance();
  ++watch.steps;
  window[static_cast<std::size_t>(watch.steps) % window.size()] = now;
  if (detail::log_goes_out(e, state.last_logged_step)) log(e);
}

void ThroughputMonitor::on(const EpochEnd& e) {
  if (detail::log_goes_out(e, state.last_logged_step)) log(e);
}

// Writing a log waits for the steps whose losses it contains, so this time counts.
void ThroughputMonitor::on(const Log&) {
  if (watch.runs) advance();
}

void ThroughputMonitor::pause() {
  if (watch.runs) advance();
  watch.runs = false;
}

void ThroughputMonitor::proceed() {
  watch.mark = std::chrono::steady_clock::now();
  watch.runs = true;
}

void ThroughputMonitor::leave_out() { watch.runs = false; }

void ThroughputMonitor::advance() {
  const auto time = std::chrono::steady_clock::now();
  now.seconds += std::chrono::duration<double>(time - watch.mark).count();
  watch.mark = time;
}

const ThroughputMonitor::Count& ThroughputMonitor::at_end_of(std::int64_t step) const {
  return window[static_cast<std::size_t>(step) % window.size()];
}

void ThroughputMonitor::log(const Context& e) const {
  const auto steps = std::min(watch.steps, window_size);
  const auto& begin = at_end_of(watch.steps - steps);
  const auto& end = at_end_of(watch.steps);
  const double seconds = end.seconds - begin.seconds, wait = end.data_wait - begin.data_wait;
  if (steps == 0 || !(seconds > 0)) return;
  // A log has the mean over all processes, but their samples add up.
  const auto processes = static_cast<double>(e.args.world_size());
  const double samples_per_sec = processes * (end.samples - begin.samples) / seconds;
  e.log("throughput/batches_per_sec", static_cast<double>(steps) / seconds);
  e.log("throughput/samples_per_sec", samples_per_sec);
  if (count_tokens || !main_input_name.empty())
    e.log("throughput/tokens_per_sec", processes * (end.tokens - begin.tokens) / seconds);
  if (flops_per_sample > 0) e.log("throughput/flops_per_sec", samples_per_sec * flops_per_sample);
  if (peak_flops > 0) e.log("throughput/mfu", samples_per_sec * flops_per_sample / peak_flops);
  e.log("throughput/data_wait_fraction", wait / seconds);
  e.log("time/data_wait", wait / static_cast<double>(steps));
  e.log("time/compute", (seconds - wait) / static_cast<double>(steps));
}

}  // namespace etude::inline v0
