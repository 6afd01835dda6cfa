#include "etude/parallel/broadcast.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"

namespace etude::inline v0 {

void broadcast_tensors(Communicator& communicator, const std::vector<torch::Tensor>& tensors) {
  if (communicator.world_size() == 1) return;
  constexpr std::int64_t most_bytes = std::int64_t{64} << 20;
  const torch::NoGradGuard no_grad;
  const auto send = [&](std::vector<torch::Tensor>& group) {
    if (group.empty()) return;
    std::vector<torch::Tensor> flat;
    for (const auto& tensor : group) flat.push_back(tensor.detach().reshape({-1}));
    const auto all = torch::cat(flat);
    communicator.broadcast(all);
    std::int64_t begin = 0;
    for (const auto& tensor : group) {
      tensor.detach().copy_(all.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
      begin += tensor.numel();
    }
    group.clear();
  };
  std::map<std::pair<std::string, torch::ScalarType>, std::pair<std::vector<torch::Tensor>, std::int64_t>>
      open;
  for (const auto& tensor : tensors) {
    auto& [group, bytes] = open[{tensor.device().str(), tensor.scalar_type()}];
    group.push_back(tensor);
    bytes += static_cast<std::int64_t>(tensor.nbytes());
    if (bytes < most_bytes) continue;
    send(group);
    bytes = 0;
  }
  for (auto& [kind, group] : open) send(group.first);
}

void broadcast_state(Communicator& communicator,
                     const std::vector<std::pair<std::string, torch::Tensor>>& state) {
  if (communicator.world_size() == 1) return;
  std::string own;
  for (const auto& [name, tensor] : state) own += fmt::format("{} {}\n", name, describe(tensor));
  const auto all = communicator.gather_bytes(own);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    std::istringstream first(all[0]), other(all[rank]);
    std::string here, there;
    for (;;) {
      const bool has_here = static_cast<bool>(std::getline(first, here));
      const bool has_there = static_cast<bool>(std::getline(other, there));
      if (!has_here && !has_there) break;
      if (has_here && has_there && here == there) continue;
      throw DataError(
          fmt::format("rank {} of {}: the model isn't the same in all processes: rank 0 has {}, "
                      "rank {} {}",
                      communicator.rank(), communicator.world_size(), has_here ? here : "no more tensors",
                      rank, has_there ? "has " + there : "has no more tensors"));
    }
  }
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : state) tensors.push_back(tensor);
  broadcast_tensors(communicator, tensors);
}

}  // namespace etude::inline v0
