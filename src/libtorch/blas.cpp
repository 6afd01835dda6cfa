#include "etude/libtorch/blas.hpp"

#include <ATen/Context.h>

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

bool has_fast_bfloat16(const torch::Device& device) {
  if (!device.is_cpu()) return device.is_cuda();
#if defined(__x86_64__)
  return at::hasMKLDNN() && __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

}  // namespace etude::inline v0
