#pragma once

#include <c10/util/Exception.h>

#include <concepts>
#include <exception>
#include <string_view>

namespace etude {

/// Puts `place` and a colon before the message of an exception of LibTorch's, which stays the object and the
/// type that it is. The stack frames that LibTorch adds to `what()` are left out, unless the environment has
/// TORCH_SHOW_CPP_STACKTRACES (and not 0).
void add_place(c10::Error& error, std::string_view place);

/// Leaves out the stack frames of `error`, if it is one of LibTorch's, in the same way.
void leave_out_frames(const std::exception_ptr& error);

/// Runs `part`; an exception of LibTorch's out of it says where it came from, which `place()` gives, or
/// `place(its message)`.
template <class Part, class Place>
decltype(auto) with_place(Part part, Place place) {
  try {
    return part();
  } catch (c10::Error& error) {
    if constexpr (std::invocable<Place&, std::string_view>)
      add_place(error, place(error.what_without_backtrace()));
    else
      add_place(error, place());
    throw;
  }
}

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/libtorch/impl/error.ipp"
#endif
