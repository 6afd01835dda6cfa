#include "etude/optim/named_optimizer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <string_view>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

std::size_t OptimizerList::find(std::string_view name) const {
  for (std::size_t i = 0; i < list_.size(); ++i)
    if (list_[i].name == name) return i;
  throw ArgumentError(
      empty() ? fmt::format("there is no optimizer '{}' before train()", name)
              : fmt::format("there is no optimizer '{}': must be one of {}", name, fmt::join(names(), ", ")));
}

}  // namespace etude::inline v0
