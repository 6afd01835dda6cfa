#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/optim/lr_scheduler.hpp"
#include "etude/optim/optimizer.hpp"

namespace etude::inline v0 {

/// One of a training's optimizers, with its schedule. A single one needs no name.
struct NamedOptimizer {
  std::string name;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<LRScheduler> lr_scheduler = nullptr;
};

/// The file of a checkpoint for one of its optimizers: "optimizer.json" if it has no name, and
/// "optimizer.generator.json" if it is called "generator".
inline std::string optimizer_file(std::string file, std::string_view name) {
  if (!name.empty()) file.insert(file.rfind('.'), '.' + std::string(name));
  return file;
}

/// A training's optimizers. Those of one training share no parameter.
class OptimizerList {
 public:
  bool empty() const { return list_.empty(); }
  auto begin() { return list_.begin(); }
  auto end() { return list_.end(); }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }

  /// The one that updates the weights in each step: the first. Null if there is none.
  Optimizer* main() const { return empty() ? nullptr : list_.front().optimizer.get(); }
  LRScheduler* main_scheduler() const { return empty() ? nullptr : list_.front().lr_scheduler.get(); }

  void add(NamedOptimizer optimizer) { list_.push_back(std::move(optimizer)); }
  void clear() {
    for (auto& each : list_) each.lr_scheduler.reset();  // it points into the optimizer
    list_.clear();
  }

  void zero_grad() {
    for (auto& each : list_) each.optimizer->zero_grad();
  }

  /// Their names; none if a single one has no name.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& each : list_) names.push_back(each.name);
    return names == std::vector<std::string>{""} ? std::vector<std::string>{} : names;
  }

 private:
  std::vector<NamedOptimizer> list_;
};

}  // namespace etude::inline v0
