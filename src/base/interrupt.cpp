#include "etude/base/interrupt.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

SignalGuard::SignalGuard(bool on) : on_(on), thread_(std::this_thread::get_id()) {
  if (!on_) return;
  const std::lock_guard lock(mutex());
  ++users_by_thread()[thread_];
  owner() = ::getpid();
  if (users()++ > 0) return;
  pending() = adopted() = 0;
  for (auto& [signal, before] : previous()) {
    struct sigaction action {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART;
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

SignalGuard::~SignalGuard() { restore(); }

void SignalGuard::restore() {
  if (!std::exchange(on_, false)) return;
  const std::lock_guard lock(mutex());
  if (--users_by_thread()[thread_] == 0) users_by_thread().erase(thread_);
  if (--users() > 0) return;
  for (const auto& [signal, before] : previous()) sigaction(signal, &before, nullptr);
  const int received = pending().exchange(0), other = adopted().exchange(0);
  if (const int signal = received != 0 ? received : other) ::raise(signal);
}

void SignalGuard::restore_with_others(int signal) {
  restore();
  {
    const std::lock_guard lock(mutex());
    // An enclosing training in this thread still has to handle it.
    if (users_by_thread().contains(std::this_thread::get_id())) return;
  }
  const auto others_are_to_answer = [&] {
    const std::lock_guard lock(mutex());
    return users() > 0 && std::ranges::any_of(previous(), [&](const auto& known) {
             return known.first == signal && known.second.sa_handler == SIG_DFL;
           });
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (others_are_to_answer() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

void SignalGuard::receive(int signal) {
  const std::lock_guard lock(mutex());
  if (users() > 0)
    adopt(signal);
  else
    ::kill(::getpid(), signal);
}

void SignalGuard::note(int signal) {
  if (owner() != ::getpid()) {
    for (const auto& [known, before] : previous())
      if (known == signal) sigaction(signal, &before, nullptr);
    ::raise(signal);  // Delivered when this handler returns.
    return;
  }
  if (pending().exchange(signal) == 0) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

int SignalGuard::came() noexcept {
  const int signal = received();
  return signal != 0 ? signal : adopted().load(std::memory_order_relaxed);
}

std::atomic<int>& SignalGuard::pending() {
  static_assert(std::atomic<int>::is_always_lock_free, "written in a signal handler");
  static std::atomic<int> signal = 0;
  return signal;
}

std::atomic<int>& SignalGuard::adopted() {
  static std::atomic<int> signal = 0;
  return signal;
}

std::atomic<pid_t>& SignalGuard::owner() {
  static_assert(std::atomic<pid_t>::is_always_lock_free, "read in a signal handler");
  static std::atomic<pid_t> process = 0;
  return process;
}

std::mutex& SignalGuard::mutex() {
  static std::mutex instance;
  return instance;
}

int& SignalGuard::users() {
  static int count = 0;
  return count;
}

std::map<std::thread::id, int>& SignalGuard::users_by_thread() {
  static std::map<std::thread::id, int> counts;
  return counts;
}

SignalGuard::Actions& SignalGuard::previous() {
  static Actions actions{{{SIGTERM, {}}, {SIGINT, {}}}};
  return actions;
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
