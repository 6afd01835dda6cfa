#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/optim/flat_parameters.hpp"
#include "etude/parallel/gradient_reducer.hpp"

namespace etude::inline v0 {

ETUDE_INLINE GradientReducer::GradientReducer(Communicator& communicator,
                                              std::vector<FlatParameters*> parameters,
                                              const std::vector<std::string>& names, std::int64_t chunk_bytes)
    : communicator_(communicator), parameters_(std::move(parameters)), chunk_bytes_(chunk_bytes) {
  for (const auto& name : names) position_.emplace(name, position_.size());
  for (auto* flat : parameters_) flat->keep_gradients_flat();
}

ETUDE_INLINE void GradientReducer::begin() {
  for (auto* flat : parameters_) flat->gather();
  if (is_outdated()) make_chunks();
  for (auto& chunk : chunks_) chunk.missing = chunk.parameters;
  next_ = 0;
  sending_ = communicator_.world_size() > 1;
}

ETUDE_INLINE void GradientReducer::finish() {
  if (!sending_) return;
  sending_ = false;
  sent_early_ = next_;
  while (next_ < chunks_.size()) send_next();
  for (const auto& message : std::exchange(messages_, {})) message();
  agree_on_gradients();
}

ETUDE_INLINE bool GradientReducer::is_outdated() const {
  if (layouts_.size() != parameters_.size()) return true;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i]->layout() != layouts_[i]) return true;
  return false;
}

ETUDE_INLINE void GradientReducer::make_chunks() {
  hooks_.clear();
  chunks_.clear();
  layouts_.clear();
  std::vector<std::vector<std::size_t>> chunk_of;  // by list and slot
  for (std::size_t list = 0; list < parameters_.size(); ++list) {
    const auto& layout = layouts_.emplace_back(parameters_[list]->layout());
    auto& chunks = chunk_of.emplace_back();
    bool is_open = false;
    for (std::size_t i = 0; i < layout->slots.size(); ++i) {
      const auto& slot = layout->slots[i];
      const bool is_last = i + 1 == layout->slots.size() || layout->slots[i + 1].buffer != slot.buffer;
      const auto end = is_last ? layout->buffers[slot.buffer].size : layout->slots[i + 1].offset;
      if (!is_open)
        chunks_.push_back({.list = list,
                           .buffer = slot.buffer,
                           .begin = slot.offset,
                           .position = std::numeric_limits<std::size_t>::max()});
      auto& chunk = chunks_.back();
      chunk.end = end;
      ++chunk.parameters;
      chunk.position = std::min(chunk.position, position_.at(slot.name));
      chunks.push_back(chunks_.size() - 1);
      const auto bytes = (chunk.end - chunk.begin) *
                         static_cast<std::int64_t>(layout->buffers[slot.buffer].options.dtype().itemsize());
      is_open = !is_last && bytes < chunk_bytes_;
    }
  }

  // The chunk of the first layer's parameters is complete last, though its memory may lie anywhere.
  std::vector<std::size_t> order(chunks_.size()), place(chunks_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t i) { return chunks_[i].position; });
  std::vector<Chunk> sorted;
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    sorted.push_back(chunks_[order[i]]);
  }
  chunks_ = std::move(sorted);
  for (std::size_t list = 0; list < parameters_.size(); ++list)
    for (std::size_t slot = 0; slot < chunk_of[list].size(); ++slot)
      hooks_.emplace_back(parameters_[list]->parameter(slot),
                          [this, chunk = place[chunk_of[list][slot]]] { arrived(chunk); });
}

ETUDE_INLINE void GradientReducer::arrived(std::size_t chunk) {
  const std::lock_guard lock(mutex_);
  if (!sending_) return;
  if (chunks_[chunk].missing > 0) --chunks_[chunk].missing;
  while (next_ < chunks_.size() && chunks_[next_].missing == 0) send_next();
}

ETUDE_INLINE void GradientReducer::send_next() {
  const auto& chunk = chunks_[next_++];
  const auto& buffer = parameters_[chunk.list]->gradients()[chunk.buffer];
  messages_.push_back(communicator_.begin_sum(buffer.narrow(0, chunk.begin, chunk.end - chunk.begin)));
}

ETUDE_INLINE void GradientReducer::agree_on_gradients() {
  std::int64_t slots = 0;
  for (const auto& layout : layouts_) slots += static_cast<std::int64_t>(layout->slots.size());
  const auto flags = torch::zeros({slots}, torch::kInt);
  auto* flag = flags.data_ptr<int>();
  for (const auto* flat : parameters_)
    for (std::size_t i = 0; i < flat->layout()->slots.size(); ++i) *flag++ = flat->has_gradient(i);
  communicator_.sum(flags);
  flag = flags.data_ptr<int>();
  for (auto* flat : parameters_)
    for (std::size_t i = 0; i < flat->layout()->slots.size(); ++i) flat->set_has_gradient(i, *flag++ > 0);
}

}  // namespace etude::inline v0
