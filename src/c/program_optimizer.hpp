#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "etude/optim/optimizer.hpp"

namespace etude::inline v0::c {

/// An optimizer whose step the program makes. Whatever it keeps from step to step belongs to the program.
class ProgramOptimizer final : public Optimizer {
 public:
  /// `step` gets the learning rate.
  ProgramOptimizer(const NamedTensors& parameters, double learning_rate,
                   std::function<void(double learning_rate)> step);

  std::string type() const override { return "ProgramOptimizer"; }

 protected:
  void update() override;
  NamedTensors moments(std::size_t) override { return {}; }
  void set_moments(std::size_t, const std::vector<torch::Tensor>&) override {}
  nlohmann::ordered_json group_options(std::size_t group) override;

 private:
  std::function<void(double)> step_;
};

}  // namespace etude::inline v0::c
