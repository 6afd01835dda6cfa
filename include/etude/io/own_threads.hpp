#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

namespace etude::detail {

/// How long an end waits for threads that fetch data and may be stuck in doing so.
inline constexpr std::chrono::milliseconds patience_with_threads{500};

/// How many forks lie between this process and the first of its line.
int fork_count() noexcept;

/// Tells whether this is the process in which it was made, or a child made by fork() since: that has copies
/// of all objects, but no thread other than the one that called fork().
class ForkMark {
 public:
  bool is_in_child() const noexcept { return forks_ != fork_count(); }

 private:
  int forks_ = fork_count();
};

/// Destroys only in the process in which it was made: in a child made by fork(), a thread that isn't there
/// may have been using the object or waiting on it, and destroying it could wait for that thread.
struct DeleteUnlessForked {
  ForkMark mark;
  template <class T>
  void operator()(T* object) const {
    if (!mark.is_in_child()) delete object;
  }
};
template <class T>
using ThreadShared = std::unique_ptr<T, DeleteUnlessForked>;

template <class T, class... Parts>
ThreadShared<T> make_thread_shared(Parts&&... parts) {
  return ThreadShared<T>(new T(std::forward<Parts>(parts)...));
}

/// Work that isn't done in the program's own threads. `exit` and the end of `main` wait for it: for a `job`
/// until it is done, for a `load`, which may be stuck, as long as `patience_with_threads`. A load that isn't
/// done by then never comes back from its destructor here, and one that is begun later never from its
/// constructor, so that its thread touches nothing that `exit` destroys. `exit` called in such work ends the
/// process without destroying anything, since other threads go on, and says so on standard error.
///
/// A thread that is joined where an object of static storage is destroyed has `is_given_up`, which is set
/// before: then the load comes back all the same.
class OwnWork {
 public:
  enum Kind { job, load };

  explicit OwnWork(Kind kind, const std::atomic<bool>* is_given_up = nullptr);
  OwnWork(const OwnWork&) = delete;
  OwnWork& operator=(const OwnWork&) = delete;
  ~OwnWork();

  /// Says that it is done in this thread, if that isn't the one that has made it.
  void enter() noexcept;

 private:
  void stay_while_exiting() const noexcept;

  Kind kind_;
  const std::atomic<bool>* is_given_up_;
  ForkMark mark_;
};

/// Says why on standard error and ends the process, without running what `exit` runs.
[[noreturn]] void end_process(const char* why, int status) noexcept;

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/io/impl/own_threads.ipp"
#endif
