#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "etude/optim/optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct AdamW8bitOptions {
  ETUDE_STRUCT(AdamW8bitOptions, (double, lr, "learning rate" | at_least(0), 1e-3),
               (double, beta1, "decay of the mean of the gradients" | at_least(0).below(1), 0.9),
               (double, beta2, "decay of the mean of their squares" | at_least(0).below(1), 0.999),
               (double, eps, "added to the denominator" | at_least(0), 1e-8),
               (double, weight_decay, "decoupled weight decay" | at_least(0), 1e-2),
               (std::int64_t, min_8bit_size,
                "parameters with fewer elements keep float32 moments" | at_least(0), 4096));
};

/// AdamW whose moments take 8 bits per element plus a float32 scale per block of 256 elements, in the
/// parameter's logical order (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"), with the
/// codes of bitsandbytes. Half-precision parameters are computed in float32. On the CPU, float32 parameters
/// are updated in one pass; float64 parameters and other devices use operators that make temporary copies of
/// one parameter at a time.
class AdamW8bit : public Optimizer {
 public:
  using Options = AdamW8bitOptions;

  explicit AdamW8bit(const std::vector<ParameterGroup>& groups, const AdamW8bitOptions& options = {});

 protected:
  nlohmann::ordered_json own_options() const override;

  void update() override;

  bool uses_kernels() const override;

  NamedTensors moments(std::size_t slot) override;

  void reset_moments(std::size_t slot) override;

 private:
  struct Moments {
    torch::Tensor mean, square;                // 8-bit codes if there are scales, otherwise plain values
    torch::Tensor mean_absmax, square_absmax;  // the scales; undefined for small parameters
  };

  /// The coefficients of an update.
  struct Step {
    double scale, keep, beta1, beta2, eps, correction, rate;
  };

  Moments& moments_of(std::size_t slot);
  void update_parameter(std::size_t slot, const ParamGroup& group, std::int64_t steps);
  static void update_in_one_pass(const torch::Tensor& values, const torch::Tensor& gradients,
                                 const Moments& of, const Step& step);
  static void update_by_operators(const torch::Tensor& values, const torch::Tensor& gradients,
                                  const Moments& of, const Step& step);

  std::map<std::string, Moments> moments_;
  AdamW8bitOptions options_;
};

}  // namespace etude::inline v0
