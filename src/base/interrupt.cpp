#include "etude/base/interrupt.hpp"

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

static_assert(std::atomic<int>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free,
              "used in a signal handler");

/// The state that all trainings of the process share. Signal handlers use only the atomics and `previous`,
/// which changes only while they aren't installed.
struct Signals {
  std::atomic<int> pending = 0, adopted = 0;
  std::atomic<pid_t> owner = 0;  // the process whose trainings handle signals
  std::mutex mutex;
  int users = 0;
  std::map<std::thread::id, int> users_by_thread;
  std::array<std::pair<int, struct sigaction>, 2> previous{{{SIGTERM, {}}, {SIGINT, {}}}};
};

Signals& signals() {
  static Signals& instance = *new Signals;  // Never destroyed: signals arrive until the end.
  return instance;
}

void note_signal(int signal) {
  auto& all = signals();
  if (all.owner != ::getpid()) {
    for (const auto& [known, before] : all.previous)
      if (known == signal) sigaction(signal, &before, nullptr);
    ::raise(signal);  // Delivered when this handler returns.
    return;
  }
  if (all.pending.exchange(signal) == 0) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

}  // namespace detail

SignalGuard::SignalGuard(bool on) : on_(on), thread_(std::this_thread::get_id()) {
  if (!on_) return;
  auto& all = detail::signals();
  const std::lock_guard lock(all.mutex);
  ++all.users_by_thread[thread_];
  all.owner = ::getpid();
  if (all.users++ > 0) return;
  all.pending = all.adopted = 0;
  for (auto& [signal, before] : all.previous) {
    struct sigaction action {};
    action.sa_handler = detail::note_signal;
    action.sa_flags = SA_RESTART;
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

SignalGuard::~SignalGuard() { restore(); }

void SignalGuard::restore() {
  if (!std::exchange(on_, false)) return;
  auto& all = detail::signals();
  const std::lock_guard lock(all.mutex);
  if (--all.users_by_thread[thread_] == 0) all.users_by_thread.erase(thread_);
  if (--all.users > 0) return;
  for (const auto& [signal, before] : all.previous) sigaction(signal, &before, nullptr);
  const int received = all.pending.exchange(0), other = all.adopted.exchange(0);
  if (const int signal = received != 0 ? received : other) ::raise(signal);
}

void SignalGuard::restore_with_others(int signal) {
  restore();
  auto& all = detail::signals();
  {
    const std::lock_guard lock(all.mutex);
    // An enclosing training in this thread still has to handle it.
    if (all.users_by_thread.contains(std::this_thread::get_id())) return;
  }
  const auto others_are_to_answer = [&] {
    const std::lock_guard lock(all.mutex);
    return all.users > 0 && std::ranges::any_of(all.previous, [&](const auto& known) {
             return known.first == signal && known.second.sa_handler == SIG_DFL;
           });
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (others_are_to_answer() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

void SignalGuard::receive(int signal) {
  auto& all = detail::signals();
  const std::lock_guard lock(all.mutex);
  if (all.users > 0)
    adopt(signal);
  else
    ::kill(::getpid(), signal);
}

void SignalGuard::adopt(int signal) { detail::signals().adopted = signal; }

int SignalGuard::came() noexcept {
  const auto& all = detail::signals();
  const int signal = all.pending.load(std::memory_order_relaxed);
  return signal != 0 ? signal : all.adopted.load(std::memory_order_relaxed);
}

bool stops_for_signal(std::string_view reason) {
  const int signal = SignalGuard::came();
  return signal != 0 && reason == signal_name(signal);
}

bool& InterruptionScope::flag() {
  thread_local bool may = false;
  return may;
}

}  // namespace etude::inline v0
