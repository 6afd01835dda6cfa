#include "etude/libtorch/torch_error.hpp"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace etude::inline v0 {
namespace detail {

bool shows_frames() {
  const char* value = std::getenv("TORCH_SHOW_CPP_STACKTRACES");
  return value != nullptr && std::string_view(value) != "0" && *value != '\0';
}

namespace {

void set_text(c10::Error& error, std::string text) {
  using Frames = std::remove_cvref_t<decltype(error.backtrace())>;  // a string before LibTorch 2.3
  // Assigns only the c10::Error base: the object keeps its own type.
  error = c10::Error(std::move(text), shows_frames() ? Frames(error.backtrace()) : Frames(), error.caller());
}

}  // namespace

}  // namespace detail

void add_place(c10::Error& error, std::string_view place) {
  detail::set_text(error, std::string(place) + ": " + error.what_without_backtrace());
}

void leave_out_frames(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (c10::Error& torch_error) {
    if (!detail::shows_frames()) detail::set_text(torch_error, torch_error.what_without_backtrace());
  } catch (...) {
    return;
  }
}

}  // namespace etude::inline v0
