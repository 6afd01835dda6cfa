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

/// True if matrix products are faster in bfloat16 than in float32: on a CUDA device, and on a CPU with
/// AVX512-BF16 if LibTorch has oneDNN, which uses it (about twice as fast).
bool has_fast_bfloat16(const torch::Device& device);

}  // namespace etude::inline v0
