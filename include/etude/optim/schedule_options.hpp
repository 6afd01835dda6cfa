#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "etude/base/error.hpp"
#include "etude/optim/read_options.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/training_arguments.hpp"

/// Applies the options that users set for schedules.
namespace etude::inline v0::detail {

/// `options` with the changes that `kwargs` makes.
template <typename Options>
Options schedule_options(SchedulerType type, const nlohmann::json& kwargs, Options options = {}) {
  read_options(kwargs, options, fmt::format("lr_scheduler_kwargs of {}", type));
  return options;
}

void no_schedule_options(SchedulerType type, const nlohmann::json& kwargs);

}  // namespace etude::inline v0::detail
