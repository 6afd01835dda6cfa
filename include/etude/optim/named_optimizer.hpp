#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/optim/lr_scheduler.hpp"
#include "etude/optim/optimizer.hpp"

namespace etude::inline v0 {

/// One of a training's optimizers, and its schedule. A single optimizer needs no name.
struct NamedOptimizer {
  std::string name;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<LRScheduler> lr_scheduler = nullptr;
  std::int64_t every = 1;                     ///< updates its parameters once every this many steps
  std::optional<double> max_grad_norm = {};   ///< replaces the trainer's
  std::optional<double> max_grad_value = {};  ///< replaces the trainer's
  bool has_stepped = false;                   ///< true if it has stepped in the current step

  /// The name under which one of its numbers is logged: "generator_grad_norm", or "grad_norm" without a name.
  std::string key(std::string_view number) const {
    return name.empty() ? std::string(number) : name + '_' + std::string(number);
  }
};

/// The name of an optimizer's file in a checkpoint: "optimizer.json" for an optimizer without a name,
/// "optimizer.generator.json" for one called "generator".
std::string optimizer_file(std::string file, std::string_view name);

/// A training's optimizers, which share no parameters.
class OptimizerList {
 public:
  bool empty() const { return list_.empty(); }
  std::size_t size() const { return list_.size(); }
  auto begin() { return list_.begin(); }
  auto end() { return list_.end(); }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }

  /// The optimizer whose turn it is or, outside of a turn, the first one. Null if there are none.
  Optimizer* current() const { return empty() ? nullptr : list_[current_].optimizer.get(); }
  LRScheduler* current_scheduler() const { return empty() ? nullptr : list_[current_].lr_scheduler.get(); }

  /// The index of the optimizer of this name. Throws an ArgumentError that lists the names if there is none.
  std::size_t find(std::string_view name) const;

  NamedOptimizer& operator[](std::size_t place) { return list_[place]; }
  const NamedOptimizer& operator[](std::size_t place) const { return list_[place]; }

  /// The index of the optimizer whose turn it is; unset outside of a turn.
  std::optional<std::size_t> turn() const { return has_turn_ ? std::optional(current_) : std::nullopt; }

  /// Gives the turn to the optimizer at `place`, if it is set: events raised meanwhile carry that optimizer.
  class Turn {
   public:
    Turn(OptimizerList& list, std::optional<std::size_t> place);
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn();

   private:
    OptimizerList& list_;
    std::size_t outside_;
    bool had_turn_;
  };

  void add(NamedOptimizer optimizer) { list_.push_back(std::move(optimizer)); }
  void clear();

  void zero_grad() {
    for (auto& each : list_) each.optimizer->zero_grad();
  }

  /// Calls `use_weights` of all optimizers.
  void use_weights(WeightsInUse which) {
    for (auto& each : list_) each.optimizer->use_weights(which);
  }

  /// The optimizers' names; empty if there is a single one without a name.
  std::vector<std::string> names() const;

 private:
  std::vector<NamedOptimizer> list_;
  std::size_t current_ = 0;
  bool has_turn_ = false;
};

/// Puts the weights to evaluate and save into the parameters, and restores the training's weights when it is
/// destroyed; see WeightsInUse. Does nothing inside another one or after the training.
class AveragedWeightsInUse {
 public:
  explicit AveragedWeightsInUse(const OptimizerList& optimizers);
  AveragedWeightsInUse(const AveragedWeightsInUse&) = delete;
  AveragedWeightsInUse& operator=(const AveragedWeightsInUse&) = delete;
  ~AveragedWeightsInUse();

 private:
  std::vector<Optimizer*> changed_;
};

}  // namespace etude::inline v0
