#include "etude/optim/named_optimizer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/message.hpp"

namespace etude::inline v0 {

std::size_t OptimizerList::find(std::string_view name) const {
  for (std::size_t i = 0; i < list_.size(); ++i)
    if (list_[i].name == name) return i;
  throw ArgumentError(
      empty() ? fmt::format("there is no optimizer '{}' before train()", name)
              : fmt::format("there is no optimizer '{}': must be one of {}", name, fmt::join(names(), ", ")));
}

std::string optimizer_file(std::string file, std::string_view name) {
  if (!name.empty()) file.insert(file.rfind('.'), '.' + std::string(name));
  return file;
}

OptimizerList::Turn::Turn(OptimizerList& list, std::optional<std::size_t> place)
    : list_(list), outside_(list.current_), had_turn_(list.has_turn_) {
  if (!place) return;
  list.current_ = *place;
  list.has_turn_ = true;
}

OptimizerList::Turn::~Turn() {
  list_.current_ = outside_;
  list_.has_turn_ = had_turn_;
}

void OptimizerList::clear() {
  for (auto& each : list_) each.lr_scheduler.reset();  // schedulers first: they point to their optimizers
  list_.clear();
}

AveragedWeightsInUse::AveragedWeightsInUse(const OptimizerList& optimizers) {
  try {
    for (const auto& each : optimizers)
      if (each.optimizer->use_weights(WeightsInUse::averaged)) changed_.push_back(each.optimizer.get());
  } catch (...) {
    for (Optimizer* each : changed_) each->use_weights(WeightsInUse::training);
    throw;
  }
}

AveragedWeightsInUse::~AveragedWeightsInUse() {
  try {
    for (Optimizer* each : changed_) each->use_weights(WeightsInUse::training);
  } catch (...) {  // after an error of the device, for example, which is already under way
    detail::message("error", -1,
                    fmt::format("the weights of the training could not be restored: {}",
                                message_of(std::current_exception())));
  }
}

std::vector<std::string> OptimizerList::names() const {
  std::vector<std::string> names;
  for (const auto& each : list_) names.push_back(each.name);
  return names == std::vector<std::string>{""} ? std::vector<std::string>{} : names;
}

}  // namespace etude::inline v0
