#include "etude/callbacks/epoch_count.hpp"

#include <cstdint>
#include <utility>

namespace etude::inline v0 {

void EpochCount::begin(const TrainBegin& e) {
  if (e.state.global_step == 0) *this = {};
  if (!std::exchange(has_begun, true)) ended = static_cast<std::int64_t>(e.state.epoch + 1e-9);
}

}  // namespace etude::inline v0
