#include "phases.hpp"

#include <algorithm>

#include "etude/loop/options.hpp"

namespace etude::inline v0 {

Phases::Phases(TrainerCore& core) : core_(core) {
  if (core.options.phases.empty()) return;
  Before before{core.options, core.args, {}};
  for (const auto& [name, parameter] : core.model.named_parameters())
    before.requires_grad.emplace_back(parameter, parameter.requires_grad());
  before_.emplace(std::move(before));
}

Phases::~Phases() {
  if (before_) set(before_->options, before_->args);
}

std::vector<std::string> Phases::names() const {
  std::vector<std::string> all;
  for (std::size_t i = 0; before_ && i < size(); ++i) all.push_back(name(i));
  return all;
}

bool Phases::begin_with(const std::vector<std::string>& done) const {
  auto first = names();
  first.resize(std::min(first.size(), done.size()));
  return done.size() < size() && first == done;
}

bool Phases::continues_data(std::size_t phase) const {
  const auto& phases = before_->options.phases;
  return !phases[phase].second.train_dataset && !phases[phase - 1].second.train_dataset;
}

void Phases::enter(std::size_t phase) {
  if (!before_) return;
  const auto& own = before_->options.phases[phase].second;
  set(detail::in_phase(before_->options, own), detail::in_phase(before_->args, own));
}

void Phases::set(TrainerOptions options, TrainingArguments args) {
  core_.options = std::move(options);
  core_.args = std::move(args);
  for (const auto& [parameter, requires_grad] : before_->requires_grad)
    parameter.set_requires_grad(requires_grad);
}

}  // namespace etude::inline v0
