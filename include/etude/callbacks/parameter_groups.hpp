#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "etude/events.hpp"
#include "etude/optim/optimizer.hpp"

namespace etude::inline v0 {

/// A table of an optimizer's groups that aren't empty: the index in `param_groups()`, the names of the first
/// parameters, the numbers of tensors and elements, the initial learning rate, the weight decay, and whether
/// the parameters are frozen ("yes", "no", or the number of frozen elements).
std::string group_table(Optimizer& optimizer);

/// Prints the optimizer's parameter groups when training begins, in the first process: see `group_table`. Put
/// it after callbacks that freeze parameters.
struct ParameterGroupsCallback {
  std::function<void(std::string_view)> print = {};  ///< receives the table instead of standard output

  void on(const TrainBegin& e) const;
};

}  // namespace etude::inline v0
