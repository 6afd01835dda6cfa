#include "etude/parallel/communicator.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

PendingMessage Communicator::begin_sum(const torch::Tensor&) {
  return [] {};
}

PendingMessage Communicator::begin_sum_parts(const torch::Tensor&) {
  return [] {};
}

void Communicator::gather_parts(const torch::Tensor&) {}

void Communicator::broadcast(const torch::Tensor&, std::int64_t) {}

torch::Tensor Communicator::gather(const torch::Tensor& tensor) {
  if (world_size() == 1) return tensor.unsqueeze(0);
  auto shape = tensor.sizes().vec();
  shape.insert(shape.begin(), world_size());
  const auto all = torch::empty(shape, tensor.options());
  all.select(0, rank()).copy_(tensor.detach());
  gather_parts(all);
  return all;
}

std::vector<std::string> Communicator::gather_bytes(const std::string& bytes) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  const auto sizes = gather(torch::tensor(size));
  auto own = torch::zeros({sizes.max().item<std::int64_t>()}, torch::kUInt8);
  if (size > 0) std::memcpy(own.data_ptr(), bytes.data(), bytes.size());
  const auto all = gather(own).contiguous();
  std::vector<std::string> result;
  for (std::int64_t i = 0; i < world_size(); ++i)
    result.emplace_back(static_cast<const char*>(all[i].data_ptr()),
                        static_cast<std::size_t>(sizes[i].item<std::int64_t>()));
  return result;
}

void Communicator::barrier() {}

void Communicator::give_up(const std::string&) {}

std::int64_t Communicator::part_of(const torch::Tensor& tensor) const {
  if (tensor.numel() % world_size() != 0)
    throw ArgumentError(fmt::format("rank {} of {}: the tensor has {} elements: must be a multiple of {}",
                                    rank(), world_size(), tensor.numel(), world_size()));
  return tensor.numel() / world_size();
}

void Communicator::check_sum(torch::Device device) {
  const auto one =
      torch::full({1}, static_cast<double>(rank() + 1), torch::TensorOptions(torch::kDouble).device(device));
  sum(one);
  const auto expected = static_cast<double>(world_size()) * static_cast<double>(world_size() + 1) / 2;
  if (const auto found = one.item<double>(); found != expected)
    fail(fmt::format("the sum of 1 to {} over all processes is {}, not {}", world_size(), found, expected));
}

void Communicator::fail(std::string_view why) const {
  throw CommunicationError(fmt::format("rank {} of {}: {}", rank(), world_size(), why));
}

Communicator::Waiting::~Waiting() {
  communicator_.waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace etude::inline v0
