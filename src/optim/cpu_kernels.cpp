#include "etude/optim/cpu_kernels.hpp"

namespace etude::inline v0::detail {

bool& uses_cpu_kernels() {
  static bool uses = true;
  return uses;
}

}  // namespace etude::inline v0::detail
