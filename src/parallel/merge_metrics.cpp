#include "etude/parallel/merge_metrics.hpp"

#include <torch/serialize.h>
#include <torch/types.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace etude::inline v0 {

std::vector<std::vector<metrics::MetricState>> gather_states(Communicator& communicator,
                                                             const std::vector<metrics::MetricState>& own) {
  auto packed = nlohmann::json::array();
  for (const auto& [name, value, merging] : own) {
    std::ostringstream bytes;
    torch::save(value.cpu(), bytes);
    const auto text = std::move(bytes).str();
    packed.push_back({name, nlohmann::json::binary({text.begin(), text.end()}), static_cast<int>(merging)});
  }
  const auto message = nlohmann::json::to_cbor(packed);
  std::vector<std::vector<metrics::MetricState>> states;
  for (const auto& text : communicator.gather_bytes(std::string(message.begin(), message.end()))) {
    auto& state = states.emplace_back();
    for (const auto& entry : nlohmann::json::from_cbor(text)) {
      const auto& binary = entry[1].get_binary();
      std::istringstream bytes(std::string(binary.begin(), binary.end()));
      torch::Tensor value;
      torch::load(value, bytes);
      state.push_back(
          {entry[0].get<std::string>(), value, static_cast<metrics::Merging>(entry[2].get<int>())});
    }
  }
  return states;
}

}  // namespace etude::inline v0
