#include "etude/loop/missing_labels.hpp"

#include <utility>

#include "etude/base/message.hpp"

namespace etude::inline v0 {

void MissingLabels::warn(std::string_view prefix) {
  if (std::exchange(warned_, true)) return;
  message(args_, LogLevel::warning,
          "the dataset of the evaluation '{}' has no labels: compute_metrics is not called, and its metrics "
          "are missing",
          prefix);
}

}  // namespace etude::inline v0
