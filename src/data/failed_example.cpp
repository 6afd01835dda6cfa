#include "etude/data/failed_example.hpp"

namespace etude::inline v0::detail {

FailedExample& last_failed_example() {
  thread_local FailedExample example;
  return example;
}

}  // namespace etude::inline v0::detail
