#pragma once

namespace etude::inline v0::detail {

/// True if optimizers use Etude's kernels on the CPU. Tests set it to false to run the code for other
/// devices.
bool& uses_cpu_kernels();

}  // namespace etude::inline v0::detail
