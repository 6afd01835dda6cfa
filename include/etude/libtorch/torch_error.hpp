#pragma once

#include <c10/util/Exception.h>

#include <concepts>
#include <exception>
#include <string_view>

namespace etude::inline v0 {

namespace detail {
/// Whether TORCH_SHOW_CPP_STACKTRACES asks for stack frames in messages.
bool shows_frames();
}  // namespace detail

/// Prepends `place` and a colon to the message of a LibTorch exception, which keeps its identity and type.
/// Removes the stack frames that LibTorch adds to `what()`, unless TORCH_SHOW_CPP_STACKTRACES is set in the
/// environment (and not 0).
void add_place(c10::Error& error, std::string_view place);

/// Removes the stack frames of `error` in the same way, if it is a LibTorch exception.
void leave_out_frames(const std::exception_ptr& error);

/// Runs `part`; a LibTorch exception thrown by it gets its origin prepended, from `place()` or
/// `place(message)`.
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

}  // namespace etude::inline v0
