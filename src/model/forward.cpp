#include "etude/model/forward.hpp"

#include <fmt/format.h>

#include <string_view>

#include "etude/base/error.hpp"

namespace etude::inline v0::detail {

void throw_forward_does_not_take(std::string_view module, const Tensors& inputs) {
  throw DataError(
      fmt::format("the forward of {} doesn't take {} tensors: {}", module, inputs.size(), describe(inputs)));
}

}  // namespace etude::inline v0::detail
