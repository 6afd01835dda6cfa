#include "etude/callbacks/learning_rate_monitor.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>

#include "etude/callbacks/log_moment.hpp"
#include "etude/optim/named_optimizer.hpp"
#include "etude/optim/optimizer.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// The momentum in the options of an optimizer's group, or the first beta.
std::optional<double> momentum_in(const nlohmann::ordered_json& options) {
  for (const char* name : {"momentum", "beta1"})
    if (const auto found = options.find(name); found != options.end() && found->is_number())
      return found->get<double>();
  if (const auto betas = options.find("betas");
      betas != options.end() && betas->is_array() && !betas->empty())
    return betas->front().get<double>();
  return std::nullopt;
}

}  // namespace

}  // namespace detail

void LearningRateMonitor::on(const TrainBegin& e) {
  if (e.state.global_step == 0) state = {};
}

void LearningRateMonitor::on(const EpochBegin& e) {
  if (logging_interval != LearningRateInterval::epoch) return;
  note(e);
  log(e);
}

void LearningRateMonitor::on(const StepBegin& e) {
  if (logging_interval == LearningRateInterval::step) note(e);
}

void LearningRateMonitor::on(const StepEnd& e) {
  if (logging_interval == LearningRateInterval::step && detail::log_goes_out(e, state.last_logged_step))
    log(e);
}

void LearningRateMonitor::on(const EpochEnd& e) {
  if (logging_interval == LearningRateInterval::step && detail::log_goes_out(e, state.last_logged_step))
    log(e);
}

void LearningRateMonitor::note(const Context& e) {
  state.learning_rates.clear();
  for (const auto& each : e.optimizers)
    for (const auto& group : each.optimizer->param_groups()) state.learning_rates.push_back(group.lr);
}

void LearningRateMonitor::log(const Context& e) const {
  std::size_t place = 0;
  for (const auto& each : e.optimizers) {
    const auto& groups = each.optimizer->param_groups();
    const auto options = log_momentum ? each.optimizer->options_state() : nlohmann::ordered_json();
    for (std::size_t i = 0; i < groups.size(); ++i, ++place) {
      auto name = "lr-" + (each.name.empty() ? each.optimizer->type() : each.name);
      if (groups.size() > 1) name += fmt::format("/pg{}", i + 1);
      e.log(name, place < state.learning_rates.size() ? state.learning_rates[place] : groups[i].lr);
      if (log_momentum) {
        auto now = options["given"][i];
        now.update(options["changed"][i]);
        const auto momentum = groups[i].momentum ? groups[i].momentum : detail::momentum_in(now);
        if (momentum) e.log(name + "-momentum", *momentum);
      }
      if (log_weight_decay) e.log(name + "-weight_decay", groups[i].weight_decay);
    }
  }
}

}  // namespace etude::inline v0
