#pragma once

#include <etude.h>
#include <fmt/format.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/message.hpp"

/// Guards each call of the C interface: against null pointers, other threads and exceptions that would leave
/// it.
namespace etude::inline v0::c {

/// An error with the status that the call returns.
struct Refusal : Error {
  Refusal(etude_status status_, const std::string& text) : Error(text), status(status_) {}
  etude_status status;
};

template <class... Parts>
[[noreturn]] void refuse(etude_status status, fmt::format_string<Parts...> format, Parts&&... parts) {
  throw Refusal(status, fmt::vformat(detail::format_text(format), fmt::make_format_args(parts...)));
}

/// The object that a pointer of the program points to. Throws Refusal for a null pointer.
template <class T>
T& required(T* pointer, const char* name) {
  if (!pointer) refuse(ETUDE_INVALID_ARGUMENT, "{} is null", name);
  return *pointer;
}

/// The text that a pointer of the program points to. Throws Refusal for null, and for text that isn't UTF-8.
std::string required_text(const char* text, const char* name);

/// Turns the current exception into a status, and keeps its text for `etude_last_error`.
etude_status failed() noexcept;

/// Runs a call, and turns an exception into a status.
template <class Act>
etude_status guarded(Act&& act) noexcept {
  try {
    std::forward<Act>(act)();
    return ETUDE_OK;
  } catch (...) {
    return failed();
  }
}

/// Lets one thread at a time use an object.
class Turn {
 public:
  /// One call of `function`. Throws Refusal if another thread is in a call, and, unless `is_nestable`, if
  /// this thread is.
  class Call {
   public:
    Call(Turn& turn, const char* function, bool is_nestable);
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call();

   private:
    Turn& turn_;
    bool is_outermost_;
  };

 private:
  std::atomic<std::thread::id> thread_{};
};

}  // namespace etude::inline v0::c
