#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// The state of a RunningMean.
struct RunningMeanState {
  ETUDE_STRUCT(RunningMeanState, (double, sum, "sum of weight * value", 0.0),
               (double, weight, "sum of the weights", 0.0),
               (double, leading, "weight of filtered values before the first finite one", 0.0),
               (std::int64_t, filtered, "values that weren't finite", 0),
               (std::optional<std::int64_t>, first_filtered, "place of the first filtered value"));
};

/// The weighted mean of numbers and one-element tensors. A value with weight 0 is ignored, even a NaN.
/// Tensors on a device are kept and read together when the mean is requested, or once there are `read_after`
/// of them, so adding one doesn't wait.
class RunningMean {
 public:
  /// With `filter_non_finite`, a NaN or an infinity counts as the mean of the preceding values since the last
  /// `reset`.
  explicit RunningMean(bool filter_non_finite = false) : filter_(filter_non_finite) {}

  /// `place` identifies the source of the value (such as an update step), for `first_non_finite`.
  void add(double value, double weight = 1, std::int64_t place = 0);

  /// Throws `DataError` unless `value` has exactly one element.
  void add(const at::Tensor& value, double weight = 1, std::int64_t place = 0);
  /// The same, with a weight that is a one-element tensor, which may be on a device.
  void add(const at::Tensor& value, const at::Tensor& weight, std::int64_t place = 0);

  /// The sum of weight * value.
  double sum();
  /// The sum of the weights.
  double weight();
  /// The mean; NaN if nothing finite was added.
  double mean();
  /// The number of non-finite values, whether filtered or not, and the place of the first one.
  std::int64_t non_finite();
  std::optional<std::int64_t> first_non_finite();
  /// The places of non-finite values since the last `reset` or `load_state`, in order. A place with several
  /// consecutive ones is listed once.
  const std::vector<std::int64_t>& non_finite_places();
  bool filters() const { return filter_; }
  void reset() { *this = RunningMean(filter_); }

  RunningMeanState state();
  void load_state(const RunningMeanState& state);

 private:
  static constexpr std::size_t read_after = 4096;

  struct Pending {
    at::Tensor value;
    std::variant<double, at::Tensor> weight;
    std::int64_t place;
  };

  void keep(const at::Tensor& value, std::variant<double, at::Tensor> weight, std::int64_t place);
  void take(double value, double weight, std::int64_t place);

  void read();

  bool filter_;
  double sum_ = 0;
  double weight_ = 0;
  double leading_ = 0;
  std::int64_t non_finite_ = 0;
  std::optional<std::int64_t> first_non_finite_;
  std::vector<std::int64_t> non_finite_places_;
  std::vector<Pending> pending_;
};

}  // namespace etude::inline v0
