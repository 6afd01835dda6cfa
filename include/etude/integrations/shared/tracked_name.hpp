#pragma once

#include <string>
#include <string_view>

namespace etude::inline v0::detail {

/// A metric's name in TensorBoard, Weights & Biases and Comet: `eval_loss` is eval/loss, `test_loss` is
/// test/loss, and everything else train/..., as in Hugging Face's `rewrite_logs`.
std::string tracked_name(std::string_view name);

}  // namespace etude::inline v0::detail
