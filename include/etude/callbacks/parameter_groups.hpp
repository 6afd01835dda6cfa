#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "etude/events.hpp"
#include "etude/optim/optimizer.hpp"

namespace etude::inline v0 {

/// A table of an optimizer's groups that aren't empty, with their numbers in `param_groups()`, names of their
/// first parameters, numbers of tensors and of elements, initial learning rate and weight decay, and whether
/// their parameters are frozen: "yes", "no", or the number of frozen elements.
std::string group_table(Optimizer& optimizer);

/// Prints the optimizer's parameter groups when training begins, in the first process: see `group_table`.
/// Callbacks that freeze parameters come before it.
struct ParameterGroupsCallback {
  using this_callback = ParameterGroupsCallback;
  std::function<void(std::string_view)> print = {};  ///< receives the table instead of standard output

  void on(const TrainBegin& e) const;
};

}  // namespace etude::inline v0
