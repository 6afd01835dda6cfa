#include "etude/optim/lbfgs_state.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace etude::inline v0::detail {

NamedTensors lbfgs_state(torch::optim::Optimizer& optimizer) {
  const torch::Tensor& first = optimizer.param_groups().front().params().front();
  auto* state = dynamic_cast<torch::optim::LBFGSParamState*>(libtorch::optimizer_state(optimizer, first));
  if (!state || !state->d().defined()) return {};
  const auto stacked = [](const std::deque<torch::Tensor>& tensors) {
    return at::stack(std::vector<torch::Tensor>(tensors.begin(), tensors.end()));
  };
  NamedTensors result{
      {"lbfgs.numbers", torch::tensor({static_cast<double>(state->func_evals()),
                                       static_cast<double>(state->n_iter()), state->t(), state->prev_loss()},
                                      at::kDouble)},
      {"lbfgs.d", state->d()},
      {"lbfgs.H_diag", state->H_diag()},
      {"lbfgs.prev_flat_grad", state->prev_flat_grad()}};
  if (!state->old_dirs().empty()) {
    result.emplace_back("lbfgs.old_dirs", stacked(state->old_dirs()));
    result.emplace_back("lbfgs.old_stps", stacked(state->old_stps()));
    result.emplace_back("lbfgs.ro", stacked(state->ro()));
  }
  return result;
}

LbfgsReader::LbfgsReader(const NamedTensors& state, const torch::Tensor& like) : like_(like) {
  for (const auto& [name, tensor] : state) {
    if (!left_.emplace(name, tensor).second)
      throw CheckpointError(fmt::format("the optimizer state contains '{}' twice", name));
  }
}

std::int64_t LbfgsReader::rows(const std::string& name) const {
  const auto found = left_.find("lbfgs." + name);
  return found != left_.end() && found->second.defined() && found->second.dim() > 0 ? found->second.size(0)
                                                                                    : 0;
}

torch::Tensor LbfgsReader::take(const std::string& name, const std::vector<std::int64_t>& sizes) {
  const auto found = left_.find("lbfgs." + name);
  if (found == left_.end()) throw CheckpointError(fmt::format("the optimizer state has no 'lbfgs.{}'", name));
  const torch::Tensor tensor = found->second;
  if (!tensor.defined() || tensor.layout() != at::kStrided || !at::isFloatingType(tensor.scalar_type()))
    throw CheckpointError(fmt::format("the optimizer state 'lbfgs.{}' isn't a floating-point tensor", name));
  if (tensor.sizes() != sizes) {
    throw CheckpointError(fmt::format("the optimizer state 'lbfgs.{}' has sizes {}, expected {}", name,
                                      tensor.sizes().vec(), sizes));
  }
  left_.erase(found);
  return tensor;
}

std::deque<torch::Tensor> LbfgsReader::copy_rows(const std::string& name,
                                                 const std::vector<std::int64_t>& sizes) {
  std::deque<torch::Tensor> result;
  for (const torch::Tensor& row : take(name, sizes).unbind()) result.push_back(copied(row));
  return result;
}

void LbfgsReader::check_end() const {
  if (left_.empty()) return;
  throw CheckpointError(
      fmt::format("the optimizer state '{}' is unknown to LBFGS; was it saved by another optimizer?",
                  left_.begin()->first));
}

std::int64_t lbfgs_count(const char* what, double value) {
  if (!(value >= 1 && value < 9007199254740992.0 && value == std::floor(value))) {
    throw CheckpointError(fmt::format(
        "the optimizer state 'lbfgs.numbers' has {} {}: must be a positive whole number below 2^53", what,
        value));
  }
  return static_cast<std::int64_t>(value);
}

void load_lbfgs_state(torch::optim::Optimizer& optimizer, const NamedTensors& given) {
  auto& group = optimizer.param_groups().front();
  const torch::Tensor& first = group.params().front();
  if (given.empty()) return libtorch::set_optimizer_state(optimizer, first, nullptr);
  std::int64_t elements = 0;
  for (const torch::Tensor& parameter : group.params()) elements += parameter.numel();
  LbfgsReader reader(given, first);
  auto state = std::make_unique<torch::optim::LBFGSParamState>();
  const torch::Tensor numbers = reader.take("numbers", {4}).to(at::kCPU, at::kDouble).contiguous();
  const double* number = numbers.data_ptr<double>();
  state->func_evals(lbfgs_count("func_evals", number[0])).n_iter(lbfgs_count("n_iter", number[1]));
  state->t(number[2]).prev_loss(number[3]);
  state->d(reader.copy("d", {elements})).H_diag(reader.copy("H_diag", {}));
  state->prev_flat_grad(reader.copy("prev_flat_grad", {elements}));
  if (const std::int64_t history = reader.rows("old_dirs"); reader.has("old_dirs")) {
    const std::int64_t most = static_cast<const torch::optim::LBFGSOptions&>(group.options()).history_size();
    if (history > most) {
      throw CheckpointError(
          fmt::format("the optimizer state 'lbfgs.old_dirs' has {} updates: must be at most history_size, {}",
                      history, most));
    }
    state->old_dirs(reader.copy_rows("old_dirs", {history, elements}));
    state->old_stps(reader.copy_rows("old_stps", {history, elements}));
    state->ro(reader.copy_rows("ro", {history}));
  }
  reader.check_end();
  libtorch::set_optimizer_state(optimizer, first, std::move(state));
}

}  // namespace etude::inline v0::detail
