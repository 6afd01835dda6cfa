#include "etude/model/compute_loss_option.hpp"

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"

namespace etude::inline v0 {

LossOutput detail::sum_of_parts(std::vector<std::string> names, std::vector<torch::Tensor> parts) {
  if (parts.empty()) throw DataError("compute_loss returned no parts of a loss: must be at least one");
  auto sum = parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i) sum = sum + parts[i];
  return {.loss = sum, .outputs = {}, .logs = Tensors(std::move(parts), std::move(names))};
}

}  // namespace etude::inline v0
