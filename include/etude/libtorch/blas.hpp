#pragma once

#include <torch/types.h>

#include <algorithm>
#include <chrono>

namespace etude {

/// How fast this LibTorch multiplies float32 matrices on one thread's worth of small work, in GFLOP/s: the
/// better of two products of 256x256 matrices.
inline double blas_gflops() {
  const auto a = torch::full({256, 256}, 0.5);
  double best = 0;
  for (int i = 0; i < 3; ++i) {  // The first pays for what the library sets up.
    const auto start = std::chrono::steady_clock::now();
    const auto product = torch::mm(a, a);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2 * 256. * 256. * 256. / 1e9 / seconds.count());
  }
  return best;
}

/// The reference BLAS, which Debian's LibTorch runs on unless another is installed, gives 1 to 2.5 GFLOP/s; a
/// tuned one on the slowest of today's processors more than 10.
inline bool blas_is_slow() { return blas_gflops() < 4; }

}  // namespace etude
