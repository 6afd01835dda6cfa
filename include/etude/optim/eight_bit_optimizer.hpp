#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "etude/optim/block_quantization.hpp"
#include "etude/optim/cpu_kernels.hpp"
#include "etude/optim/one_pass.hpp"
#include "etude/optim/parameter_optimizer.hpp"
#include "etude/optim/rule_optimizer.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

/// An optimizer whose moments take 8 bits per element plus a float32 scale per block of 256 elements, in the
/// parameter's logical order (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"), with the
/// codes of bitsandbytes. In the state, `exp_avg` has the codes of a moment and `exp_avg_absmax` its scales.
/// Parameters with fewer than `min_8bit_size` elements keep float32 moments (float64 ones if they are
/// float64). Half-precision parameters are computed in float32. On the CPU, float32 parameters are updated in
/// one pass; float64 parameters and other devices use operators that make temporary copies of one parameter
/// at a time.
///
/// `Rule` is a rule as for RuleOptimizer, with moments that start at 0 and an option `min_8bit_size`.
template <class Rule>
class EightBitOptimizer : public ParameterOptimizer {
 public:
  using Options = typename Rule::Options;

  /// Throws ArgumentError for options out of range.
  explicit EightBitOptimizer(const std::vector<ParameterGroup>& groups, const Options& options = {});

  std::string type() const override;

 protected:
  nlohmann::ordered_json group_options(std::size_t group) override;

  bool uses_kernels() const override;

  NamedTensors initial_moments(const std::string& name, const torch::Tensor& parameter) const override;

  void update_parameter(const std::string& name, const torch::Tensor& values, const torch::Tensor& gradient,
                        std::vector<torch::Tensor>& moments, const RuleStep& step) override;

 private:
  template <auto kept, class Numbers>
  void update_contiguous(const Rule& rule, const torch::Tensor& values, const torch::Tensor& gradients,
                         const std::vector<torch::Tensor>& moments, const Numbers& numbers) const;

  const detail::DynamicMap& map_of(std::size_t moment) const {
    return kept_[moment].has_sign ? detail::DynamicMap::with_sign() : detail::DynamicMap::without_sign();
  }

  Rule rule_;
  std::vector<Moment> kept_ = detail::kept_moments(Rule::moments(rule_.options));
};

namespace detail {

/// True if kernels can update the tensor.
inline bool is_float32_on_cpu(const torch::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat;
}

/// A moment in 8-bit blocks.
struct BlockMoment {
  const DynamicMap* map;
  std::uint8_t* codes;
  float* absmax;
};

/// `one_pass` over moments that are dequantized and quantized block by block.
template <std::size_t moments, class Update>
void one_pass_over_blocks(std::int64_t elements, float* values, const float* gradients,
                          const std::array<BlockMoment, moments>& moment, const Update& update) {
  constexpr std::int64_t length = quantization_block;
  const auto run = [&]<std::size_t... M>(std::index_sequence<M...>, std::int64_t first, std::int64_t last) {
    std::array<BlockValues, moments> state;
    for (auto i = first; i < last; ++i) {
      const auto at = i * length, size = std::min(length, elements - at);
      (dequantize_block(*moment[M].map, moment[M].codes + at, moment[M].absmax[i], size, state[M]), ...);
      one_pass<float, moments>(size, values + at, gradients + at, {state[M].data()...}, update);
      ((moment[M].absmax[i] = quantize_block(*moment[M].map, state[M], size, moment[M].codes + at)), ...);
    }
  };
  at::parallel_for(
      0, quantization_blocks(elements), grain / length,
      [&](std::int64_t first, std::int64_t last) { run(std::make_index_sequence<moments>(), first, last); });
}

}  // namespace detail

template <class Rule>
EightBitOptimizer<Rule>::EightBitOptimizer(const std::vector<ParameterGroup>& groups, const Options& options)
    : ParameterOptimizer(groups, options.lr, detail::weight_decay_of(options)), rule_{options} {
  detail::check_fields(options);
}

template <class Rule>
std::string EightBitOptimizer<Rule>::type() const {
  return std::string(detail::rule_name<Rule>());
}

template <class Rule>
nlohmann::ordered_json EightBitOptimizer<Rule>::group_options(std::size_t group) {
  return with_numbers_of(group, to_json_value(rule_.options));
}

template <class Rule>
bool EightBitOptimizer<Rule>::uses_kernels() const {
  return detail::uses_cpu_kernels() && std::ranges::all_of(flat_.values(), detail::is_float32_on_cpu);
}

template <class Rule>
NamedTensors EightBitOptimizer<Rule>::initial_moments(const std::string& /*name*/,
                                                      const torch::Tensor& parameter) const {
  NamedTensors result;
  const auto add = [&](std::string name, at::IntArrayRef sizes, at::ScalarType type) {
    result.emplace_back(std::move(name), at::zeros(sizes, parameter.options().dtype(type)));
  };
  const std::int64_t elements = parameter.numel();
  const bool is_small = elements < rule_.options.min_8bit_size;
  for (const Moment& moment : kept_)
    add(std::string(moment.name), parameter.sizes(), is_small ? detail::update_type(parameter) : at::kByte);
  if (is_small) return result;
  for (const Moment& moment : kept_)
    add(std::string(moment.name) + "_absmax", detail::quantization_blocks(elements), at::kFloat);
  return result;
}

template <class Rule>
void EightBitOptimizer<Rule>::update_parameter(const std::string& /*name*/, const torch::Tensor& values,
                                               const torch::Tensor& gradient,
                                               std::vector<torch::Tensor>& moments, const RuleStep& step) {
  const torch::Tensor contiguous = values.contiguous();
  Rule rule{detail::with_momentum(rule_.options, step.momentum)};
  const auto numbers = rule.numbers(step);
  detail::with_kept(
      Rule::moments(rule_.options), [&]<auto kept>(detail::Kept<kept>) {
        update_contiguous<kept>(rule, contiguous, gradient.contiguous(), moments, numbers);
      });
  if (!contiguous.is_same(values)) values.copy_(contiguous);
}

template <class Rule>
template <auto kept, class Numbers>
void EightBitOptimizer<Rule>::update_contiguous(const Rule& rule, const torch::Tensor& values,
                                                const torch::Tensor& gradients,
                                                const std::vector<torch::Tensor>& moments,
                                                const Numbers& numbers) const {
  constexpr std::size_t count = detail::number_kept<kept>;
  const bool has_codes = moments.size() > count;
  const auto first_float = moments.begin() + (has_codes ? count : 0);
  // Moments without codes keep their dtype even if the parameter's changes.
  const bool are_float32 = std::all_of(first_float, moments.end(), detail::is_float32_on_cpu);
  if (detail::is_float32_on_cpu(values) && are_float32 && detail::uses_cpu_kernels()) {
    const auto kernel = detail::kernel_of<kept>(rule, numbers, gradient_scale());
    if (!has_codes) {
      detail::one_pass<count>(values, gradients, moments, kernel);
      return;
    }
    [&]<std::size_t... M>(std::index_sequence<M...>) {
      detail::one_pass_over_blocks<count>(
          values.numel(), values.data_ptr<float>(), gradients.data_ptr<float>(),
          {detail::BlockMoment{&map_of(M), moments[M].template data_ptr<std::uint8_t>(),
                               moments[count + M].template data_ptr<float>()}...},
          kernel);
    }
    (std::make_index_sequence<count>());
    return;
  }
  std::vector<torch::Tensor> whole(moments.begin(), moments.begin() + count);
  if (has_codes)
    for (std::size_t m = 0; m < count; ++m)
      whole[m] = detail::dequantized(map_of(m), moments[m], moments[count + m], values.scalar_type());
  detail::update_by_operators<kept>(rule, values, scaled(gradients), whole, numbers);
  if (has_codes)
    for (std::size_t m = 0; m < count; ++m)
      detail::quantize(map_of(m), whole[m], moments[m], moments[count + m]);
}

}  // namespace etude::inline v0
