#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include "etude/base/error.hpp"

namespace toy {

/// The message of the `Error` that `act` throws.
template <class Error = etude::CheckpointError, std::invocable Act>
std::string fault_of(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

}  // namespace toy
