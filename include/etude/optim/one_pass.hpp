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
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/optim/bfloat16.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "etude/optim/cpu_kernels.hpp"

namespace etude::inline v0::detail {

/// A vector of adjacent elements, small enough for any processor's registers, for writing update formulas.
/// Compilers don't vectorize loops with square roots by themselves, since these may set errno.
template <class T>
struct Lanes {
  typedef T Vector __attribute__((vector_size(16)));
  static constexpr std::int64_t size = 16 / sizeof(T);

  Lanes(Vector v) : vector(v) {}
  Lanes(double everywhere) : vector(Vector{} + static_cast<T>(everywhere)) {}

  static Lanes load(const T* from) { return {*reinterpret_cast<const Unaligned*>(from)}; }
  void store(T* to) const { *reinterpret_cast<Unaligned*>(to) = vector; }

  /// Loads only the first `count` elements, for the end of a tensor.
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
  friend Lanes operator-(Lanes a) { return {-a.vector}; }
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
  friend Lanes abs(Lanes a) { return {a.vector > 0 ? a.vector : Lanes(0).vector - a.vector}; }
  /// The larger or the smaller element of each pair; NaN if either is NaN.
  friend Lanes max(Lanes a, Lanes b) {
    return {a.vector > b.vector || a.vector != a.vector ? a.vector : b.vector};
  }
  friend Lanes min(Lanes a, Lanes b) {
    return {a.vector < b.vector || a.vector != a.vector ? a.vector : b.vector};
  }
  /// The elements of `yes` where `a` is above 0, and those of `no` elsewhere.
  friend Lanes if_positive(Lanes a, Lanes yes, Lanes no) { return {a.vector > 0 ? yes.vector : no.vector}; }
  /// -1, 0 or 1; 0 for NaN, like torch.sign.
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

/// Calls `at(i)` for each full vector of `width` elements, and `at(i, count)` for the remainder, on ATen's
/// threads.
template <class At>
void for_each_vector(std::int64_t size, std::int64_t width, const At& at) {
  const auto whole = size / width;
  at::parallel_for(
      0, whole, grain / width, [&](std::int64_t begin, std::int64_t end) __attribute__((flatten)) {
        const At here = at;  // so that its constants stay in registers
        for (auto i = begin * width; i < end * width; i += width) here(i);
      });
  if (whole * width < size) at(whole * width, size - whole * width);
}

/// Calls `update(value, gradient, moments...)` on all elements in one pass over memory; it may change all of
/// them except the gradient.
template <class T, std::size_t moments, class Update>
void one_pass(std::int64_t size, T* values, const T* gradients, std::array<T*, moments> moment,
              const Update& update) {
  constexpr auto width = Lanes<T>::size;
  [&]<std::size_t... M>(std::index_sequence<M...>) {
    const auto at = [=](std::int64_t i, auto... count) {
      auto value = Lanes<T>::load(values + i, count...);
      std::array<Lanes<T>, moments> state{Lanes<T>::load(moment[M] + i, count...)...};
      update(value, Lanes<T>::load(gradients + i, count...), state[M]...);
      value.store(values + i, count...);
      (state[M].store(moment[M] + i, count...), ...);
    };
    for_each_vector(size, width, at);
  }
  (std::make_index_sequence<moments>());
}

/// The same for bfloat16: `update` gets float32 values. Moments are rounded stochastically.
template <Rounding rounding, std::size_t moments, class Update>
void one_pass(std::int64_t size, c10::BFloat16* values, const c10::BFloat16* gradients,
              std::array<c10::BFloat16*, moments> moment, const Update& update, const Bfloat16Rounding& by) {
  using Words = Bfloat16Words;
  using Floats = Lanes<float>;
  auto* compensation = rounding == Rounding::kahan ? by.compensation.data_ptr<std::int16_t>() : nullptr;
  [&]<std::size_t... M>(std::index_sequence<M...>) {
    const auto at = [=, random = by.random, first = by.first](std::int64_t i, auto... count) {
      auto words = Words::load(values + i, count...);
      if constexpr (rounding == Rounding::kahan)
        words = Words::compensated(words, compensation + i, count...);
      Floats value(Words::floats(words));
      std::array<Floats, moments> state{Floats(Words::floats(Words::load(moment[M] + i, count...)))...};
      update(value, Floats(Words::floats(Words::load(gradients + i, count...))), state[M]...);
      [[maybe_unused]] auto bits =
          random.first(Words::Words{0, 1, 2, 3} + static_cast<std::uint32_t>(first + i));
      const auto store = [&]<std::size_t number>(std::integral_constant<std::size_t, number>, auto* to,
                                                 const Floats& floats) {
        if constexpr (number > 0 && number % 2 == 0) bits = RandomBits::next(bits);
        const auto half = number % 2 == 0 ? bits & 0xffffU : bits >> 16;
        Words::store(to, Words::at_random(Words::words(floats.vector), half), count...);
      };
      (store(std::integral_constant<std::size_t, M>(), moment[M] + i, state[M]), ...);
      words = Words::words(value.vector);
      if constexpr (rounding == Rounding::stochastic)
        store(std::integral_constant<std::size_t, moments>(), values + i, value);
      else if constexpr (rounding == Rounding::kahan)
        Words::store(values + i, Words::split_off(words, compensation + i, count...), count...);
      else
        Words::store(values + i, Words::to_nearest(words), count...);
    };
    for_each_vector(size, Words::size, at);
  }
  (std::make_index_sequence<moments>());
}

/// The same for tensors with the same shape and the same dense memory order. Does nothing and returns false
/// unless they are float32, float64 or bfloat16 on the CPU. `by` says how bfloat16 is rounded: to nearest if
/// it isn't given, which is allowed only without moments.
template <std::size_t moments, class Update>
bool one_pass(const torch::Tensor& values, const torch::Tensor& gradients,
              const std::vector<torch::Tensor>& moment, const Update& update,
              const std::optional<Bfloat16Rounding>& by = std::nullopt) {
  const Bfloat16Rounding how = by.value_or(Bfloat16Rounding());
  const auto run = [&]<class T>(T) {
    [&]<std::size_t... M>(std::index_sequence<M...>) {
      const auto over = [&](auto pass) {
        pass(values.numel(), values.template data_ptr<T>(), gradients.template data_ptr<T>(),
             std::array<T*, moments>{moment[M].template data_ptr<T>()...});
      };
      if constexpr (!std::is_same_v<T, c10::BFloat16>)
        over([&](auto... arrays) { one_pass<T>(arrays..., update); });
      else if (how.rounding == Rounding::kahan)
        over([&](auto... arrays) { one_pass<Rounding::kahan>(arrays..., update, how); });
      else if (how.rounding == Rounding::stochastic)
        over([&](auto... arrays) { one_pass<Rounding::stochastic>(arrays..., update, how); });
      else
        over([&](auto... arrays) { one_pass<Rounding::nearest>(arrays..., update, how); });
    }
    (std::make_index_sequence<moments>());
    return true;
  };
  if (!values.is_cpu() || !uses_cpu_kernels()) return false;
  if (values.scalar_type() == torch::kFloat) return run(float());
  if (values.scalar_type() == torch::kDouble) return run(double());
  if (values.scalar_type() == torch::kBFloat16) return (moments == 0 || by) && run(c10::BFloat16());
  return false;
}

/// The sum of squares; bfloat16 is squared in float32. Long sums are accumulated in float64.
template <class T>
double sum_of_squares(std::int64_t size, const T* data) {
  using Number = std::conditional_t<std::is_same_v<T, c10::BFloat16>, float, T>;
  using Vector = Lanes<Number>;
  constexpr std::int64_t line = 4 * Vector::size, block = 1024;
  const auto load = [](const T* from) {
    if constexpr (std::is_same_v<T, c10::BFloat16>)
      return Vector(Bfloat16Words::floats(Bfloat16Words::load(from)));
    else
      return Vector::load(from);
  };
  const auto part = [&](std::int64_t begin, std::int64_t end, double sum) {
    for (auto from = begin * line; from < end * line; from += block) {
      std::array<Vector, 4> sums{0., 0., 0., 0.};
      for (auto i = from; i < std::min(from + block, end * line); i += line) {
        for (std::size_t j = 0; j < 4; ++j) {
          const auto x = load(data + i + static_cast<std::int64_t>(j) * Vector::size);
          sums[j] = sums[j] + x * x;
        }
      }
      sum += static_cast<double>((sums[0] + sums[1] + (sums[2] + sums[3])).sum());
    }
    return sum;
  };
  double sum = at::parallel_reduce(0, size / line, grain / line, 0., part, std::plus<>());
  for (auto i = size / line * line; i < size; ++i) {
    const auto x = static_cast<Number>(data[i]);
    sum += static_cast<double>(x * x);
  }
  return sum;
}

}  // namespace etude::inline v0::detail
