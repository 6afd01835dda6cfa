#include "etude/loop/trained.hpp"

#include <fmt/format.h>

#include "etude/base/error.hpp"
#include "etude/loop/snapshot.hpp"

namespace etude::inline v0 {

Trained::Trained(const TrainingArguments& args) : accumulation(args), part_size(args) {}

Trained::~Trained() = default;

std::int64_t Trained::trainable_parameters() const {
  std::int64_t count = 0;
  for (const auto& [name, parameter] : model.named_parameters())
    if (parameter.requires_grad()) count += parameter.numel();
  return count;
}

std::vector<double> Trained::learning_rates() const {
  if (optimizers.empty()) throw ArgumentError("the optimizer doesn't exist before train()");
  std::vector<double> rates;
  for (const auto& each : optimizers.current()->param_groups()) rates.push_back(each.lr);
  return rates;
}

void Trained::offload_moments() {
  for (const auto& each : optimizers)
    if (!each.optimizer->offload_moments())
      throw ArgumentError(fmt::format(
          "offload_optimizer is true: must be false with {}, whose state is used on the device only",
          each.optimizer->type()));
}

void Trained::return_carried() const {
  if (work_begin) work_begin->restore<part::Carried>();
}

}  // namespace etude::inline v0
