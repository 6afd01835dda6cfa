#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/libtorch/random_state.hpp"
#include "etude/loop/core.hpp"
#include "etude/model/carried_state.hpp"
#include "etude/model/model.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/precision/grad_scaler.hpp"

namespace etude::inline v0 {

namespace detail {

/// The learning rate and the initial one of each group.
using LearningRates = std::vector<std::pair<double, double>>;
LearningRates learning_rates(Optimizer& optimizer);
void set_learning_rates(Optimizer& optimizer, const LearningRates& rates);

}  // namespace detail

/// A copy, in host memory, of everything that a training changes: weights, the optimizers' states and
/// options, the generators, and what the model carries.
class TrainingSnapshot {
 public:
  explicit TrainingSnapshot(TrainerCore& core);

  /// Restores everything. An optimizer that didn't exist then starts from scratch.
  void restore() const;

 private:
  struct OptimizerCopy {
    std::vector<NamedTensor> moments;
    nlohmann::ordered_json options;
    detail::LearningRates rates;
  };

  TrainerCore& core_;
  std::vector<NamedTensor> weights_;
  std::map<std::string, OptimizerCopy> optimizers_;  // by name
  std::optional<GradScaler> scaler_;
  RandomState random_;
  CarriedTensors carried_;
};

}  // namespace etude::inline v0
