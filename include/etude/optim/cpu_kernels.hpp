#pragma once

namespace etude::inline v0::detail {

/// Whether optimizers use our own kernels on the CPU. Tests turn them off, to run the code for other
/// devices.
bool& uses_cpu_kernels();

}  // namespace etude::inline v0::detail
