#include "etude/parallel/memory_estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/optim/flat_layout.hpp"
#include "etude/parallel/sharded_units.hpp"

namespace etude::inline v0 {
namespace detail {

ProcessMemory with_shards(const ProcessMemory& replicated, Optimizer& optimizer, const Model& model,
                          ShardStage stage, std::int64_t world_size, std::int64_t block_bytes) {
  divisible(optimizer);
  FlatShard shard{
      .count = world_size, .block_bytes = block_bytes, .gradients = stage != ShardStage::optimizer_state};
  if (stage == ShardStage::parameters) shard.unit_of = unit_of_parameters(model);
  std::vector<NamedTensors> groups;
  for (const auto& group : optimizer.param_groups()) groups.push_back(group.parameters);
  std::int64_t whole = 0, all = 0, divided = 0, largest_block = 0;
  std::map<std::size_t, std::int64_t> units;
  const auto layout = plan_flat(groups, optimizer.flat_parameters().layout().get(), shard).layout;
  for (const auto& buffer : layout->buffers) {
    const auto element = static_cast<std::int64_t>(buffer.options.dtype().itemsize());
    const auto bytes = buffer.size * element;
    all += bytes;
    if (buffer.unit == FlatLayout::no_unit) {
      whole += bytes;
    } else {
      units[buffer.unit] += bytes;
      divided += bytes / world_size;
    }
    largest_block = std::max(largest_block, std::min(buffer.block, buffer.size) * element);
  }
  std::int64_t largest_unit = 0;
  for (const auto& [unit, bytes] : units) largest_unit = std::max(largest_unit, bytes);

  auto result = replicated;
  const auto frozen = replicated.parameters - replicated.gradients;
  result.parameters = frozen + whole + divided + largest_unit;
  if (shard.gradients) {
    // One block is sent, one is being filled, and one at each end of the latest gradient's parameter is
    // incomplete.
    constexpr int blocks = 4;
    result.gradients = all / world_size + std::min(blocks * largest_block, all);
  }
  result.moments = replicated.moments / world_size;
  result.peak += result.parameters - replicated.parameters + result.gradients - replicated.gradients +
                 result.moments - replicated.moments;
  result.start = replicated.parameters + replicated.buffers + all;
  return result;
}

namespace {

std::string memory_line(std::string_view name, const std::vector<std::string>& cells) {
  auto line = fmt::format("{:<24}", name);
  for (const auto& cell : cells) line += fmt::format("{:>13}", cell);
  return line + "\n";
}

std::string memory_line(std::string_view name, const ProcessMemory& memory) {
  std::vector<std::string> cells;
  for (const auto bytes : {memory.parameters, memory.buffers, memory.gradients, memory.moments,
                           memory.activations, memory.batches, memory.copies, memory.start, memory.peak})
    cells.push_back(fmt::format("{:.3f}", static_cast<double>(bytes) / 1e6));
  return memory_line(name, cells);
}

}  // namespace

}  // namespace detail

std::string MemoryEstimate::table() const {
  auto text = detail::memory_line("MB", {"parameters", "buffers", "gradients", "moments", "activations",
                                         "batches", "copies", "at start", "in a step"});
  text += std::string(text.size() - 1, '-') + "\n" + detail::memory_line("one process", one_process);
  if (!replicated) return text;
  text += fmt::format("each of {} processes\n", world_size);
  text += detail::memory_line("DistributedDataParallel", *replicated);
  for (const auto stage : {ShardStage::optimizer_state, ShardStage::gradients, ShardStage::parameters}) {
    const auto name = fmt::format("ShardedDataParallel<{}>", static_cast<int>(stage));
    if (const auto found = shards.find(stage); found != shards.end())
      text += detail::memory_line(name, found->second);
    else if (const auto why = refused.find(stage); why != refused.end())
      text += fmt::format("{:<24}  {}\n", name, why->second);
  }
  return text;
}

}  // namespace etude::inline v0
