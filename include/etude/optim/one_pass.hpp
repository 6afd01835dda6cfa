#pragma once

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "etude/optim/cpu_kernels.hpp"

namespace etude::inline v0::detail {

/// A vector of adjacent elements, sized to the registers of any processor, for writing update formulas:
/// compilers don't vectorize loops with square roots, since these may set errno.
template <class T>
struct Lanes {
  typedef T Vector __attribute__((vector_size(16)));
  static constexpr std::int64_t size = 16 / sizeof(T);

  Lanes(Vector v) : vector(v) {}
  Lanes(double everywhere) : vector(Vector{} + static_cast<T>(everywhere)) {}

  static Lanes load(const T* from) { return {*reinterpret_cast<const Unaligned*>(from)}; }
  void store(T* to) const { *reinterpret_cast<Unaligned*>(to) = vector; }

  /// Loads the first `count` elements only, at the end of memory.
  static Lanes load(const T* from, std::int64_t count) {
    Lanes lanes(0.);
    std::memcpy(&lanes.vector, from, static_cast<std::size_t>(count) * sizeof(T));
    return lanes;
  }
  void store(T* to, std::int64_t count) const {
    std::memcpy(to, &vector, static_cast<std::size_t>(count) * sizeof(T));
  }

  friend Lanes operator+(Lanes a, Lanes b) { return {a.vector + b.vector}; }
  friend Lanes operator-(Lanes a, Lanes b) { return {a.vector - b.vector}; }
  friend Lanes operator*(Lanes a, Lanes b) { return {a.vector * b.vector}; }
  friend Lanes operator/(Lanes a, Lanes b) { return {a.vector / b.vector}; }
  friend Lanes sqrt(Lanes a) {
#if defined(__SSE2__)
    if constexpr (sizeof(T) == 4)
      return {_mm_sqrt_ps(a.vector)};
    else
      return {_mm_sqrt_pd(a.vector)};
#elif defined(__aarch64__)
    if constexpr (sizeof(T) == 4)
      return {Vector(vsqrtq_f32(float32x4_t(a.vector)))};
    else
      return {Vector(vsqrtq_f64(float64x2_t(a.vector)))};
#else
    for (int i = 0; i < size; ++i) a.vector[i] = std::sqrt(a.vector[i]);
    return a;
#endif
  }
  /// NaN if either is.
  friend Lanes max(Lanes a, Lanes b) {
    return {a.vector > b.vector || a.vector != a.vector ? a.vector : b.vector};
  }
  /// -1, 0 or 1; 0 for NaN, as torch.sign.
  friend Lanes sign(Lanes a) {
    return {a.vector > 0 ? Lanes(1).vector : a.vector < 0 ? Lanes(-1).vector : Lanes(0).vector};
  }
  T sum() const {
    T result = 0;
    for (int i = 0; i < size; ++i) result += vector[i];
    return result;
  }

  Vector vector;

 private:
  typedef Vector Unaligned __attribute__((aligned(alignof(T)), may_alias));
};

/// The minimum number of elements per ATen thread.
inline constexpr std::int64_t grain = 32'768;

/// Calls `update(value, gradient, moments...)` on all elements in one pass over memory; it may change all of
/// them except the gradient.
template <class T, std::size_t moments, class Update>
void one_pass(std::int64_t size, T* values, const T* gradients, std::array<T*, moments> moment,
              const Update& update) {
  constexpr auto width = Lanes<T>::size;
  [&]<std::size_t... M>(std::index_sequence<M...>) {
    const auto at = [&](std::int64_t i, auto... count) {
      auto value = Lanes<T>::load(values + i, count...);
      std::array<Lanes<T>, moments> state{Lanes<T>::load(moment[M] + i, count...)...};
      update(value, Lanes<T>::load(gradients + i, count...), state[M]...);
      value.store(values + i, count...);
      (state[M].store(moment[M] + i, count...), ...);
    };
    const auto whole = size / width;
    at::parallel_for(0, whole, grain / width, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = begin * width; i < end * width; i += width) at(i);
    });
    if (whole * width < size) at(whole * width, size - whole * width);
  }
  (std::make_index_sequence<moments>());
}

/// The same for tensors of one shape, dense in memory in the same order. Returns false without doing anything
/// unless they are float32 or float64 on the CPU.
template <std::size_t moments, class Update>
bool one_pass(const torch::Tensor& values, const torch::Tensor& gradients,
              const std::vector<torch::Tensor>& moment, const Update& update) {
  const auto run = [&]<class T>(T) {
    [&]<std::size_t... M>(std::index_sequence<M...>) {
      one_pass<T>(values.numel(), values.template data_ptr<T>(), gradients.template data_ptr<T>(),
                  std::array<T*, moments>{moment[M].template data_ptr<T>()...}, update);
    }
    (std::make_index_sequence<moments>());
    return true;
  };
  if (!values.is_cpu() || !uses_cpu_kernels()) return false;
  if (values.scalar_type() == torch::kFloat) return run(float());
  if (values.scalar_type() == torch::kDouble) return run(double());
  return false;
}

/// The sum of squares. Long sums are accumulated in float64.
template <class T>
double sum_of_squares(std::int64_t size, const T* data) {
  constexpr std::int64_t line = 64 / sizeof(T), block = 1024;
  const auto part = [&](std::int64_t begin, std::int64_t end, double sum) {
    for (auto from = begin * line; from < end * line; from += block) {
      std::array<Lanes<T>, 4> sums{0., 0., 0., 0.};
      for (auto i = from; i < std::min(from + block, end * line); i += line) {
        for (std::size_t j = 0; j < 4; ++j) {
          const auto x = Lanes<T>::load(data + i + static_cast<std::int64_t>(j) * Lanes<T>::size);
          sums[j] = sums[j] + x * x;
        }
      }
      sum += static_cast<double>((sums[0] + sums[1] + (sums[2] + sums[3])).sum());
    }
    return sum;
  };
  double sum = at::parallel_reduce(0, size / line, grain / line, 0., part, std::plus<>());
  for (auto i = size / line * line; i < size; ++i) sum += static_cast<double>(data[i] * data[i]);
  return sum;
}

}  // namespace etude::inline v0::detail
