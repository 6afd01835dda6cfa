#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace toy {

/// A dataset of unknown length that ends after some examples, all of them ones.
struct Stream {
  std::int64_t examples;
  std::int64_t given = 0;
  void reset() { given = 0; }
  std::optional<std::pair<torch::Tensor, torch::Tensor>> next() {
    if (given++ == examples) return std::nullopt;
    return std::pair{torch::ones({1}), torch::ones({1})};
  }
};

}  // namespace toy
