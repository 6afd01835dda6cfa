#pragma once

#include <fmt/format.h>

#include <string_view>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/model/forward.hpp"

namespace etude::inline v0::detail {

ETUDE_INLINE void throw_forward_does_not_take(std::string_view module, const Tensors& inputs) {
  throw DataError(
      fmt::format("the forward of {} doesn't take {} tensors: {}", module, inputs.size(), describe(inputs)));
}

}  // namespace etude::inline v0::detail
