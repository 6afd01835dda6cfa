#include "etude/optim/torch_kinds.hpp"

#include <string>

namespace etude::inline v0::detail {

std::string TorchKind<torch::optim::SGDOptions>::fault(const torch::optim::SGDOptions& known) {
  if (!known.nesterov() || (known.momentum() > 0 && known.dampening() == 0)) return "";
  return "nesterov is true: momentum must be above 0 and dampening 0";
}

std::string TorchKind<torch::optim::LBFGSOptions>::fault(const torch::optim::LBFGSOptions& known) {
  const auto& search = known.line_search_fn();
  if (!search || *search == "strong_wolfe") return "";
  return "line_search_fn is \"" + *search + "\": must be \"strong_wolfe\", or null";
}

}  // namespace etude::inline v0::detail
