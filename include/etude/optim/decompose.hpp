#pragma once

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <string>

#include "etude/base/error.hpp"

namespace etude::inline v0::detail {

/// Calls `decompose(matrix)`, and again in float64 if that fails. Throws Error if that fails too.
template <class Decompose>
auto decomposed(const std::string& parameter, const torch::Tensor& matrix, const Decompose& decompose) {
  try {
    return decompose(matrix);
  } catch (const c10::LinAlgError&) {
  }
  try {
    return decompose(matrix.to(at::kDouble));
  } catch (const c10::LinAlgError& error) {
    throw Error(
        fmt::format("the gradient of parameter '{}' can't be decomposed (it may contain NaN or infinity): {}",
                    parameter, error.what_without_backtrace()));
  }
}

}  // namespace etude::inline v0::detail
