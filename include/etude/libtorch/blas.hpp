#pragma once

#include <ATen/Parallel.h>
#include <torch/types.h>

namespace etude::inline v0 {

/// The speed of float32 matrix products on one thread, in GFLOP/s: the best of several products of 256x256
/// matrices, since other load can only slow them down. Takes a few milliseconds with a tuned BLAS.
double blas_gflops();

/// The reference BLAS, which Debian's LibTorch uses unless another is installed, reaches 1 to 2.5 GFLOP/s; a
/// tuned one exceeds 10 even on the slowest of today's processors.
inline constexpr double slow_blas_gflops = 4;

}  // namespace etude::inline v0
