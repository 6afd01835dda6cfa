#include "etude/optim/rules/sparse_adam.hpp"

#include <fmt/format.h>

#include <cstddef>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

template class RuleOptimizer<SparseAdamRule>;

void SparseAdam::update() {
  flat_.mend();
  for (std::size_t i = 0; i < flat_.layout()->slots.size(); ++i) {
    const torch::Tensor& gradient = flat_.parameter(i).grad();
    if (flat_.has_gradient(i) && !(gradient.defined() && gradient.is_sparse()))
      throw ArgumentError(
          fmt::format("parameter '{}' has a dense gradient, which SparseAdam can't use: must be trained by "
                      "another optimizer",
                      flat_.layout()->slots[i].name));
  }
  FlatOptimizer::update();
}

}  // namespace etude::inline v0
