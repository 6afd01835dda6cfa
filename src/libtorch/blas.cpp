#include "etude/libtorch/blas.hpp"

#include <algorithm>
#include <chrono>

namespace etude::inline v0 {

double blas_gflops() {
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

}  // namespace etude::inline v0
