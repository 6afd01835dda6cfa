#include "etude/parallel/gradient_reducer.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/flat_parameters.hpp"
#include "etude/parallel/sum_of_sparse.hpp"

namespace etude::inline v0 {

GradientReducer::GradientReducer(Communicator& communicator, std::vector<FlatParameters*> parameters,
                                 const std::vector<std::string>& names, std::int64_t chunk_bytes)
    : communicator_(communicator), parameters_(std::move(parameters)), chunk_bytes_(chunk_bytes) {
  for (const auto& name : names) position_.emplace(name, position_.size());
  for (auto* flat : parameters_) flat->keep_gradients_flat();
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::begin() {
  for (auto* flat : parameters_) flat->gather();
  if (is_outdated()) make_chunks();
  for (auto& chunk : chunks_) {
    chunk.missing = chunk.parameters;
    chunk.apart.reset();
  }
  next_ = 0;
  sending_ = communicator_.world_size() > 1;
}

bool GradientReducer::sums_every_backward() const {
  return std::ranges::any_of(parameters_, [](const auto* flat) { return flat->layout()->shard.gradients; });
}

GradientsResults GradientReducer::finish(GradientsResult result, const std::vector<double>& numbers,
                                         bool same_graphs) {
  if (!sending_) begin();
  sent_early_ = next_;
  if (std::exchange(sending_, false)) {
    for (std::size_t list = 0; list < parameters_.size(); ++list)
      if (layouts_[list]->shard.gradients)
        for (std::size_t slot = 0; slot < layouts_[list]->slots.size(); ++slot)
          if (const auto gradient = take_gradient(list, slot); gradient.defined())
            for (const auto chunk : chunks_of_[list][slot]) add_to_apart(chunks_[chunk], slot, gradient);
    while (next_ < chunks_.size()) send_next();
  }
  // The agreement is sent while the gradients are still in transfer.
  const auto agreement = own_result(result, numbers);
  const auto agreed = communicator_.begin_sum(agreement);
  for (const auto& message : std::exchange(messages_, {})) message();
  agreed();
  const auto all = read_agreement(agreement, numbers.size(), same_graphs);
  sum_sparse();
  for (auto* flat : parameters_) flat->mark_gradients_sharded();
  return all;
}

bool GradientReducer::is_outdated() const {
  if (!std::ranges::equal(layouts_, parameters_, {}, {}, &FlatParameters::layout)) return true;
  auto hook = hooks_.begin();  // one per parameter
  for (std::size_t list = 0; list < parameters_.size(); ++list)
    for (std::size_t slot = 0; slot < layouts_[list]->slots.size(); ++slot, ++hook)
      if (hook->exists() != parameters_[list]->parameter(slot).requires_grad()) return true;
  return false;
}

void GradientReducer::make_chunks() {
  hooks_.clear();
  chunks_.clear();
  layouts_.clear();
  chunks_of_.clear();
  for (std::size_t list = 0; list < parameters_.size(); ++list) {
    const auto& layout = layouts_.emplace_back(parameters_[list]->layout());
    chunks_of_.emplace_back(layout->slots.size());
    if (layout->is_sharded())
      add_chunks_of_blocks(list);
    else
      add_chunks_of_parameters(list);
  }

  // Sends the chunk with the first layer's parameters last: it is complete last, wherever its memory is.
  std::ranges::stable_sort(chunks_, std::ranges::greater(), &Chunk::position);
  for (std::size_t i = 0; i < chunks_.size(); ++i)
    for (const auto slot : chunks_[i].slots) chunks_of_[chunks_[i].list][slot].push_back(i);
  for (std::size_t list = 0; list < parameters_.size(); ++list)
    for (std::size_t slot = 0; slot < chunks_of_[list].size(); ++slot)
      hooks_.emplace_back(parameters_[list]->parameter(slot), [this, list, slot] { arrived(list, slot); });
}

void GradientReducer::add_chunks_of_parameters(std::size_t list) {
  const auto& layout = *layouts_[list];
  bool is_open = false;
  for (std::size_t i = 0; i < layout.slots.size(); ++i) {
    const auto& slot = layout.slots[i];
    const auto& buffer = layout.buffers[slot.buffer];
    if (buffer.is_sparse) continue;
    const bool is_last = i + 1 == layout.slots.size() || layout.slots[i + 1].buffer != slot.buffer;
    if (!is_open) chunks_.push_back({.list = list, .buffer = slot.buffer, .begin = slot.offset});
    auto& chunk = chunks_.back();
    chunk.end = is_last ? buffer.size : layout.slots[i + 1].offset;
    add_to_chunk(chunks_.size() - 1, list, i);
    const auto bytes =
        (chunk.end - chunk.begin) * static_cast<std::int64_t>(buffer.options.dtype().itemsize());
    is_open = !is_last && bytes < chunk_bytes_;
  }
}

void GradientReducer::add_chunks_of_blocks(std::size_t list) {
  const auto& layout = *layouts_[list];
  std::vector<std::size_t> first;  // by buffer
  for (std::size_t i = 0; i < layout.buffers.size(); ++i) {
    const auto& buffer = layout.buffers[i];
    first.push_back(chunks_.size());
    for (std::int64_t begin = 0; begin < buffer.size; begin += buffer.block)
      chunks_.push_back(
          {.list = list, .buffer = i, .begin = begin, .end = std::min(begin + buffer.block, buffer.size)});
  }
  for (std::size_t i = 0; i < layout.slots.size(); ++i) {
    const auto& slot = layout.slots[i];
    const auto block = layout.buffers[slot.buffer].block;
    for (auto at = slot.offset / block; at * block < slot.offset + slot.size; ++at)
      add_to_chunk(first[slot.buffer] + static_cast<std::size_t>(at), list, i);
  }
}

void GradientReducer::add_to_chunk(std::size_t chunk, std::size_t list, std::size_t slot) {
  if (parameters_[list]->parameter(slot).requires_grad()) ++chunks_[chunk].parameters;
  // A parameter that isn't the model's, such as a loss's, counts as used at the end of the forward pass.
  const auto known = position_.find(layouts_[list]->slots[slot].name);
  const auto position = known == position_.end() ? position_.size() : known->second;
  chunks_[chunk].position = std::min(chunks_[chunk].position, position);
  chunks_[chunk].slots.push_back(slot);
}

void GradientReducer::arrived(std::size_t list, std::size_t slot) {
  const std::lock_guard lock(mutex_);
  if (!sending_) return;
  const bool keeps_share = layouts_[list]->shard.gradients;
  if (!keeps_share) parameters_[list]->gather_gradient(slot);
  const auto gradient = keeps_share ? take_gradient(list, slot) : torch::Tensor();
  for (const auto i : chunks_of_[list][slot]) {
    auto& chunk = chunks_[i];
    if (gradient.defined()) add_to_apart(chunk, slot, gradient);
    if (chunk.missing > 0) --chunk.missing;
    while (next_ < chunks_.size() && chunks_[next_].missing == 0) send_next();
  }
}

torch::Tensor GradientReducer::take_gradient(std::size_t list, std::size_t slot) {
  auto& gradient = parameters_[list]->parameter(slot).mutable_grad();
  if (!gradient.defined()) return {};
  const auto& place = layouts_[list]->slots[slot];
  if (gradient.is_sparse()) detail::refuse_sparse_with_shards(place.name);
  auto flat = place.flattened(gradient, layouts_[list]->buffers[place.buffer].options);
  gradient.reset();
  parameters_[list]->set_has_gradient(slot, true);
  return flat;
}

void GradientReducer::add_to_apart(Chunk& chunk, std::size_t slot, const torch::Tensor& gradient) {
  const torch::NoGradGuard no_grad;
  const auto& place = layouts_[chunk.list]->slots[slot];
  if (!chunk.apart.defined()) chunk.apart = torch::zeros({chunk.end - chunk.begin}, gradient.options());
  const auto begin = std::max(chunk.begin, place.offset);
  const auto size = std::min(chunk.end, place.offset + place.size) - begin;
  chunk.apart.narrow(0, begin - chunk.begin, size).add_(gradient.narrow(0, begin - place.offset, size));
}

void GradientReducer::send_next() {
  auto& chunk = chunks_[next_++];
  const auto& layout = *layouts_[chunk.list];
  if (layout.shard.gradients) {
    // Chunks take memory, so only one is in transfer while the next is filled.
    for (; !messages_.empty(); messages_.pop_front()) messages_.front()();
    const auto gradients =
        chunk.apart.defined() ? std::exchange(chunk.apart, {})
                              : torch::zeros({chunk.end - chunk.begin}, layout.buffers[chunk.buffer].options);
    messages_.push_back(begin_sum_of_apart(chunk, gradients));
    return;
  }
  const auto gradients =
      parameters_[chunk.list]->gradients()[chunk.buffer].narrow(0, chunk.begin, chunk.end - chunk.begin);
  messages_.push_back(layout.is_sharded() ? communicator_.begin_sum_parts(gradients)
                                          : communicator_.begin_sum(gradients));
}

PendingMessage GradientReducer::begin_sum_of_apart(const Chunk& chunk, const torch::Tensor& gradients) {
  const auto own = layouts_[chunk.list]->segments(chunk.buffer, chunk.begin, chunk.end).front();
  const auto kept = parameters_[chunk.list]->gradients()[chunk.buffer].narrow(0, own.kept, own.size);
  const auto sum = gradients.narrow(0, own.begin - chunk.begin, own.size);
  return [kept, sum, arrive = communicator_.begin_sum_parts(gradients)] {
    arrive();
    const torch::NoGradGuard no_grad;
    kept.add_(sum);
  };
}

torch::Tensor GradientReducer::own_result(GradientsResult result, const std::vector<double>& numbers) const {
  std::size_t slots = 0;
  for (const auto& layout : layouts_) slots += layout->slots.size();
  constexpr auto counts = std::tuple_size_v<decltype(GradientsResults::counts)>;
  auto values = torch::zeros({static_cast<std::int64_t>(slots + counts + numbers.size())}, torch::kDouble);
  auto* value = values.data_ptr<double>();
  for (const auto* flat : parameters_) {
    const auto first = value;
    for (std::size_t i = 0; i < flat->layout()->slots.size(); ++i) *value++ = flat->has_gradient(i) ? 1 : 0;
    for (const auto slot : flat->new_sparse()) first[slot] = new_sparse;
  }
  value[static_cast<std::size_t>(result)] = 1;
  std::ranges::copy(numbers, value + counts);
  return values;
}

GradientsResults GradientReducer::read_agreement(const torch::Tensor& sums, std::size_t numbers,
                                                 bool same_graphs) {
  GradientsResults all;
  const auto* const end = sums.data_ptr<double>() + sums.numel();
  const auto* const counts = end - numbers - all.counts.size();
  for (std::size_t i = 0; i < all.counts.size(); ++i) all.counts[i] = static_cast<std::int64_t>(counts[i]);
  all.sums.assign(end - numbers, end);
  const auto computed = all.count(GradientsResult::complete);
  const auto* value = sums.data_ptr<double>();
  for (auto* flat : parameters_) {
    std::vector<std::size_t> sparse_slots;
    for (std::size_t i = 0; i < flat->layout()->slots.size(); ++i, ++value) {
      const auto& name = flat->layout()->slots[i].name;
      const auto sparse = static_cast<std::int64_t>(*value / new_sparse),
                 dense = static_cast<std::int64_t>(*value - static_cast<double>(sparse) * new_sparse);
      if (same_graphs && computed == communicator_.world_size() && sparse + dense < computed &&
          flat->parameter(i).requires_grad())
        throw DataError(fmt::format(
            "parameter '{}' has no gradient in {} of {} processes, and ddp_find_unused_parameters is false: "
            "must be true for a model that doesn't use all its parameters in each step",
            name, computed - sparse - dense, computed));
      if (sparse > 0 && dense > 0)
        throw DataError(
            fmt::format("parameter '{}' has a sparse gradient in {} processes and a dense one in {}: must be "
                        "the same in all",
                        name, sparse, dense));
      if (sparse > 0)
        sparse_slots.push_back(i);
      else if (!flat->is_sparse(i))
        flat->set_has_gradient(i, dense > 0);
    }
    flat->make_sparse(sparse_slots);
  }
  return all;
}

void GradientReducer::sum_sparse() {
  std::vector<std::pair<FlatParameters*, std::size_t>> slots;
  std::vector<torch::Tensor> gradients, parameters;
  for (auto* flat : parameters_)
    for (std::size_t i = 0; i < flat->layout()->slots.size(); ++i)
      if (flat->is_sparse(i)) {
        slots.emplace_back(flat, i);
        gradients.push_back(flat->coalesced_gradient(i));
        parameters.push_back(flat->parameter(i));
      }
  if (slots.empty() || communicator_.world_size() == 1) return;
  const auto sums = sums_of_sparse(communicator_, gradients, parameters);
  for (std::size_t i = 0; i < slots.size(); ++i)
    slots[i].first->set_sparse_gradient(slots[i].second, sums[i]);
}

}  // namespace etude::inline v0
