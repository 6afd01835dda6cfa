#include "etude/io/own_threads.hpp"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

namespace etude::inline v0::detail {

namespace {

struct OwnThreads {
  std::atomic<int> forks = 0;
  std::array<std::atomic<int>, 2> at_work = {};  // indexed by OwnWork::Kind
  std::atomic<bool> exiting = false;

  int count(OwnWork::Kind kind) const { return at_work.at(static_cast<std::size_t>(kind)).load(); }
  void add(OwnWork::Kind kind, int number) { at_work.at(static_cast<std::size_t>(kind)) += number; }
};

// The kind of work that this thread runs, if Etude started it.
std::optional<OwnWork::Kind>& own_work_here() {
  thread_local std::optional<OwnWork::Kind> kind;
  return kind;
}

void finish_own_work(OwnThreads& own, int status) {
  own.exiting = true;
  const auto here = own_work_here();
  const auto is_done = [&](OwnWork::Kind kind) { return own.count(kind) <= (here == kind ? 1 : 0); };
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + patience_with_threads;
  const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  while (!is_done(OwnWork::load) && Clock::now() < end) wait();
  while (!is_done(OwnWork::job)) wait();
  if (here)
    end_process(
        "exit() was called in one of Etude's threads, but other threads are still running: the "
        "process ends without destructors or TrainEnd; throw an exception instead",
        status);
}

OwnThreads& own_threads() {
  // Never destroyed: `exit` destroys statics while threads may still be running.
  static OwnThreads& instance = *new OwnThreads;
  [[maybe_unused]] static const bool registered = [] {
    ::pthread_atfork(nullptr, nullptr, [] {
      ++instance.forks;
      instance.at_work[OwnWork::job] = instance.at_work[OwnWork::load] = 0;
      instance.exiting = false;
      own_work_here().reset();
    });
#ifdef __GLIBC__
    ::on_exit([](int status, void*) { finish_own_work(instance, status); }, nullptr);
#else
    std::atexit([] { finish_own_work(instance, EXIT_FAILURE); });
#endif
    return true;
  }();
  return instance;
}

}  // namespace

int fork_count() noexcept { return own_threads().forks.load(std::memory_order_relaxed); }

OwnWork::OwnWork(Kind kind, const std::atomic<bool>* is_given_up) : kind_(kind), is_given_up_(is_given_up) {
  auto& own = own_threads();
  own.add(kind_, 1);
  if (kind_ == job) return;
  enter();
  if (!own.exiting) return;
  own.add(kind_, -1);
  stay_while_exiting();
  own.add(kind_, 1);
}

OwnWork::~OwnWork() {
  if (mark_.is_in_child()) return;
  auto& own = own_threads();
  own.add(kind_, -1);
  if (kind_ == job) return;
  stay_while_exiting();
  own_work_here().reset();
}

void OwnWork::stay_while_exiting() const noexcept {
  while (own_threads().exiting && !(is_given_up_ && *is_given_up_))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

void OwnWork::enter() noexcept { own_work_here() = kind_; }

void end_process(const char* why, int status) noexcept {
  for (const char* part : {why, "\n"})
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace etude::inline v0::detail
