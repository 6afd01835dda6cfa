#pragma once

#include <fmt/format.h>
#include <torch/version.h>

// LibTorch's CMake targets define USE_C10D_GLOO if it has Gloo, but some packages lack Gloo's headers.
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

/// Added to the timeout, so that LibTorch reports it first: its message says more.
inline constexpr std::chrono::milliseconds grace_of_joining(500);

/// Calls `act` in another thread, which is abandoned if nobody waits for the result.
template <class Act>
std::future<std::invoke_result_t<Act>> in_thread(Act act) {
  std::packaged_task<std::invoke_result_t<Act>()> task(std::move(act));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  return result;
}

/// Calls `act` in another thread and returns its result. At the timeout, throws std::runtime_error and
/// abandons the thread: LibTorch waits forever for an address that accepts a connection but never answers.
template <class Act>
std::invoke_result_t<Act> within(std::chrono::milliseconds timeout, Act act) {
  auto result = in_thread(std::move(act));
  if (result.wait_for(timeout) == std::future_status::ready) return result.get();
  throw std::runtime_error(
      fmt::format("no answer within {} s", std::chrono::duration<double>(timeout).count()));
}

/// A store that the processes of a training share, at MASTER_ADDR and MASTER_PORT. Each call returns a new
/// one, so all processes must call it equally often. Throws CommunicationError that names the address.
c10::intrusive_ptr<c10d::Store> meet(const Launch& launch, std::chrono::milliseconds timeout);

/// Drops the C++ stack trace that follows LibTorch's messages.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace etude::inline v0::detail
#endif
