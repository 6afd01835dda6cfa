#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "etude/error.hpp"
#include "etude/linkage.hpp"
#include "etude/trackers.hpp"
#include "etude/training_arguments.hpp"

namespace etude {

ETUDE_INLINE void check_report_to(const TrainingArguments& args,
                                  const std::vector<std::string_view>& callbacks) {
  for (const auto& tracker : trackers)
    if (std::ranges::find(args.report_to, tracker.name) != args.report_to.end() &&
        std::ranges::find(callbacks, tracker.callback) == callbacks.end())
      throw ArgumentError(fmt::format(
          "report_to has '{}', and the trainer has no {}: must have one in its list, or RuntimeCallbacks and "
          "a call of etude::add_trackers(trainer), of etude/integrations/report_to.hpp, in a program built "
          "with {}",
          tracker.name, tracker.callback, tracker.option));
}

}  // namespace etude
