#pragma once

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>

namespace etude::inline v0 {

/// The speed of float32 matrix products on one thread, in GFLOP/s: the best of several products of 256x256
/// matrices, since other load can only slow them down. Takes a few milliseconds with a tuned BLAS.
inline double blas_gflops() {
  const auto threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto a = torch::full({256, 256}, 0.5);
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const auto product = torch::mm(a, a);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2 * 256. * 256. * 256. / 1e9 / seconds.count());
  }
  at::set_num_threads(threads);
  return best;
}

/// The reference BLAS, which Debian's LibTorch uses unless another is installed, reaches 1 to 2.5 GFLOP/s; a
/// tuned one exceeds 10 even on the slowest of today's processors.
inline constexpr double slow_blas_gflops = 4;

}  // namespace etude::inline v0
