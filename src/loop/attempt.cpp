#include "attempt.hpp"

#include <utility>

namespace etude::inline v0 {

void Attempt::rethrow_stop() const {
  std::string first = "another process stops";
  for (const auto& reason : core_.ranks.gather(reason_)) {
    if (reason.empty()) continue;
    first = reason;
    break;
  }
  rethrow(StopTraining(first));
}

void Attempt::keep(GradientsResult result, std::string reason) {
  result_ = result;
  reason_ = std::move(reason);
  error_ = std::current_exception();
}

}  // namespace etude::inline v0
