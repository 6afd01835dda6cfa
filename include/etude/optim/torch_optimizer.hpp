#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/optim/optimizer.hpp"

namespace etude {

/// An optimizer of torch's, or one of the user's own that derives from it. Its parameters lie flat as for any
/// other. It sees an undefined gradient where none came, as it would without us. The learning rate may be set
/// here
/// (`param_groups`, a scheduler of ours) or in its options (by a scheduler of torch's): the last change
/// counts. `weight_decay` in `param_groups` is not known, and 0.
///
/// Parameters of the model that it doesn't hold are neither updated nor part of the norm; `zero_grad` clears
/// their gradients so that these don't pile up.
class TorchOptimizer : public Optimizer {
 public:
  /// `parameters` are the model's, for their names. What the optimizer holds beyond them is named
  /// `param_groups.<group>.<index>`. Throws ArgumentError without an optimizer.
  TorchOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer, const NamedTensors& parameters);

  ETUDE_INLINE torch::Tensor step(const Closure& closure = nullptr) override;

  ETUDE_INLINE void zero_grad() override;

  ETUDE_INLINE std::vector<ParamGroup>& param_groups() override;

  torch::optim::Optimizer& torch_optimizer() { return *optimizer_; }

  ETUDE_INLINE bool needs_closure() const override;

  ETUDE_INLINE void set_learning_rates(std::size_t group, double lr, double initial_lr) override;

  /// That of LibTorch's optimizer; of a type of the user's, which it is.
  ETUDE_INLINE std::string type() const override;

  /// As ours, for the optimizers that LibTorch has: ours of the same kind can load it. That of LBFGS is its
  /// own. Throws CheckpointError for a type of the user's, whose state nobody can know.
  ETUDE_INLINE NamedTensors state() override;

  ETUDE_INLINE void load_state(const NamedTensors& state) override;

 protected:
  ETUDE_INLINE void update() override;

  ETUDE_INLINE NamedTensors moments(std::size_t slot) override;

  ETUDE_INLINE NamedSizes moment_sizes(std::size_t slot) override;

  ETUDE_INLINE void reset_moments(std::size_t slot) override;

  ETUDE_INLINE nlohmann::ordered_json group_options(std::size_t group) override;

  ETUDE_INLINE void check_group_options(std::size_t group, const nlohmann::ordered_json& merged,
                                        const nlohmann::ordered_json& given) override;

  ETUDE_INLINE void set_group_options(std::size_t group, const nlohmann::ordered_json& merged) override;

 private:
  static torch::optim::Optimizer& required(const std::shared_ptr<torch::optim::Optimizer>& optimizer);

  static std::vector<ParameterGroup> groups_of(torch::optim::Optimizer& optimizer,
                                               const NamedTensors& parameters);

  void push_lr();

  torch::optim::OptimizerOptions& torch_options_of(std::size_t slot);

  nlohmann::ordered_json options_of(std::size_t group);

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<double> seen_lr_;  // in torch's options, when we last looked
  std::vector<torch::Tensor> others_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/optim/impl/torch_optimizer.ipp"
#endif
