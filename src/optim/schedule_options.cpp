#include "etude/optim/schedule_options.hpp"

#include <fmt/format.h>

namespace etude::inline v0::detail {

void no_schedule_options(SchedulerType type, const nlohmann::json& kwargs) {
  if (!kwargs.empty()) {
    throw ArgumentError(fmt::format("lr_scheduler_kwargs is {}: {} has no options", kwargs.dump(), type));
  }
}

}  // namespace etude::inline v0::detail
