#pragma once

#include <fmt/format.h>
#include <torch/version.h>

// LibTorch's targets say whether it has Gloo; their packages leave out Gloo's own headers.
#if defined(USE_C10D_GLOO) && __has_include(<gloo/algorithm.h>)
#define ETUDE_HAS_GLOO 1
#include <torch/csrc/distributed/c10d/Store.hpp>
#else
#define ETUDE_HAS_GLOO 0
#endif

#include <chrono>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "etude/io/launch.hpp"

#if ETUDE_HAS_GLOO
namespace etude::inline v0::detail {

/// LibTorch's own report of a timeout says more, and comes first.
inline constexpr std::chrono::milliseconds grace_of_joining(500);

/// Calls `act` in another thread and returns its result. Throws std::runtime_error at the timeout, and leaves
/// the thread behind: LibTorch waits for ever for an address that accepts a connection and says nothing.
template <class Act>
std::invoke_result_t<Act> within(std::chrono::milliseconds timeout, Act act) {
  std::packaged_task<std::invoke_result_t<Act>()> task(std::move(act));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(timeout) == std::future_status::ready) return result.get();
  throw std::runtime_error(
      fmt::format("no answer within {} s", std::chrono::duration<double>(timeout).count()));
}

/// A store that the processes of a training share, at MASTER_ADDR and MASTER_PORT: each call returns a new
/// one, so all processes must call it as often. Throws CommunicationError that names where they meet.
c10::intrusive_ptr<c10d::Store> meet(const Launch& launch, std::chrono::milliseconds timeout);

/// LibTorch's messages go on with the C++ stack.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace etude::inline v0::detail
#endif
