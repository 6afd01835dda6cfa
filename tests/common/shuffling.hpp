#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "etude/data/batch_stream.hpp"

namespace toy {

/// A sampler that shuffles with its own generator, so each epoch's order depends on the epochs before.
struct Shuffling : etude::StatefulSampler {
  explicit Shuffling(std::size_t n) : order(n) {}

  void reset(torch::optional<std::size_t>) override {
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), generator);
    at = 0;
  }
  torch::optional<std::vector<std::size_t>> next(std::size_t count) override {
    if (at == order.size()) return {};
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(at);
    at = std::min(order.size(), at + count);
    std::vector<std::size_t> indices(first, order.begin() + static_cast<std::ptrdiff_t>(at));
    seen.insert(seen.end(), indices.begin(), indices.end());
    return indices;
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  std::string state() const override {
    std::ostringstream text;
    text << generator;
    return text.str();
  }
  void load_state(const std::string& text) override { std::istringstream(text) >> generator; }

  std::mt19937 generator{7};
  std::vector<std::size_t> order;
  std::vector<std::size_t> seen;  ///< the indices it has returned, in order
  std::size_t at = 0;
};

}  // namespace toy
