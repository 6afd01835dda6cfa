#pragma once

#include <string>
#include <string_view>

namespace etude::inline v0::detail {

/// A metric's name in TensorBoard, Weights & Biases and Comet: `eval_loss` is eval/loss, `test_loss` is
/// test/loss, and everything else train/..., as in Hugging Face's `rewrite_logs`.
inline std::string tracked_name(std::string_view name) {
  for (const std::string_view use : {"eval", "test"})
    if (name.starts_with(use) && name.substr(use.size()).starts_with('_'))
      return std::string(use) + '/' + std::string(name.substr(use.size() + 1));
  return "train/" + std::string(name);
}

}  // namespace etude::inline v0::detail
