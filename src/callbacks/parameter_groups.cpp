#include "etude/callbacks/parameter_groups.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "etude/base/message.hpp"
#include "etude/callbacks/text_table.hpp"

namespace etude::inline v0 {

std::string group_table(Optimizer& optimizer) {
  std::vector<std::vector<std::string>> rows{
      {"Group", "Parameters", "Tensors", "Elements", "Learning rate", "Weight decay", "Frozen"}};
  const auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& parameters = groups[i].parameters;
    if (parameters.empty()) continue;
    std::string names;
    std::int64_t elements = 0, frozen = 0;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const auto& [name, tensor] = parameters[p];
      if (p < 2) names += (p == 0 ? "" : ", ") + name;
      elements += tensor.numel();
      if (!tensor.requires_grad()) frozen += tensor.numel();
    }
    if (parameters.size() > 2) names += ", ...";
    rows.push_back({std::to_string(i), names, detail::in_thousands(std::ssize(parameters)),
                    detail::in_thousands(elements), fmt::format("{:.4g}", groups[i].initial_lr),
                    fmt::format("{:.4g}", groups[i].weight_decay),
                    frozen == 0          ? "no"
                    : frozen == elements ? "yes"
                                         : detail::in_thousands(frozen)});
  }
  return detail::text_table(rows, 2);
}

void ParameterGroupsCallback::on(const TrainBegin& e) const {
  if (!e.state.is_world_process_zero) return;
  const auto table = group_table(*e.optimizer);
  print ? print(table) : write_text(stdout, table);
}

}  // namespace etude::inline v0
