#pragma once

#include <c10/util/Optional.h>
#include <torch/version.h>

#include <optional>

namespace etude::inline v0::libtorch {

/// LibTorch's optional type, which is std::optional since LibTorch 2.2.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 2)
template <class T>
using Optional = std::optional<T>;
#else
template <class T>
using Optional = c10::optional<T>;
#endif

}  // namespace etude::inline v0::libtorch
