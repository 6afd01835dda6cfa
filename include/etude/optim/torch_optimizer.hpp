#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "etude/optim/optimizer.hpp"

namespace etude::inline v0 {

/// Wraps a torch optimizer, or a user's subclass of one. Its parameters are flat like any other optimizer's.
/// A parameter that got no gradient has an undefined gradient, as it would without Etude. The learning rate
/// may be set here (through `param_groups` or one of Etude's schedulers) or in the torch optimizer's options
/// (by a torch scheduler): the last change wins. `weight_decay` in `param_groups` is 0, since the actual
/// value isn't known.
///
/// Parameters of the model that the torch optimizer doesn't hold are neither updated nor part of the norm;
/// `zero_grad` clears their gradients, so that they don't accumulate.
class TorchOptimizer : public Optimizer {
 public:
  /// `parameters` provides the names of the model's parameters. Other tensors that the optimizer holds are
  /// named `param_groups.<group>.<index>`. Throws ArgumentError for a null optimizer.
  TorchOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer, const NamedTensors& parameters);

  torch::Tensor step(const Closure& closure = nullptr) override;

  void zero_grad() override;

  std::vector<ParamGroup>& param_groups() override;

  torch::optim::Optimizer& torch_optimizer() { return *optimizer_; }

  OptimizerTraits traits() const override;

  void set_learning_rates(std::size_t group, double lr, double initial_lr) override;

  /// The name of LibTorch's optimizer, or of the user's type.
  std::string type() const override;

  /// The state of LibTorch's optimizers has the form of Etude's: Etude's optimizer of the same type can load
  /// it. The state of LBFGS has a different form. Throws CheckpointError for a user's type, whose state is
  /// unknown.
  NamedTensors state() override;

  /// LBFGS keeps `history_size` pairs of vectors, and the last direction and gradient.
  std::int64_t state_bytes() override;

  void load_state(const NamedTensors& state) override;

 protected:
  void update() override;

  NamedTensors moments(std::size_t slot) override;

  NamedSizes moment_sizes(std::size_t slot) override;

  void set_moments(std::size_t slot, const std::vector<torch::Tensor>& values) override;

  nlohmann::ordered_json group_options(std::size_t group) override;

  std::function<void()> setter_of_options(std::size_t group, const nlohmann::ordered_json& merged,
                                          const nlohmann::ordered_json& given) override;

 private:
  static torch::optim::Optimizer& required(const std::shared_ptr<torch::optim::Optimizer>& optimizer);

  static std::vector<ParameterGroup> groups_of(torch::optim::Optimizer& optimizer,
                                               const NamedTensors& parameters);

  void push_lr();

  torch::optim::OptimizerOptions& torch_options_of(std::size_t slot);

  nlohmann::ordered_json options_of(std::size_t group);

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<double> seen_lr_;  // learning rates in torch's options, as last read
  std::vector<torch::Tensor> others_;
};

}  // namespace etude::inline v0
