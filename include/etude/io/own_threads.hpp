#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

namespace etude::inline v0::detail {

/// How long shutdown waits for data-loading threads, which may be stuck.
inline constexpr std::chrono::milliseconds patience_with_threads{500};

/// The number of forks between this process and its first ancestor that used Etude.
int fork_count() noexcept;

/// Detects a fork() since its construction: a child has copies of all objects, but no threads other than the
/// one that called fork().
class ForkMark {
 public:
  bool is_in_child() const noexcept { return forks_ != fork_count(); }

 private:
  int forks_ = fork_count();
};

/// Destroys the object only in the process that made it: in a child made by fork(), a missing thread may have
/// been using the object or waiting on it, so destroying it could block forever.
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

/// Marks work in a thread that Etude started. `exit` and the end of `main` wait for a `job` until it is done,
/// and for a `load`, which may be stuck, at most `patience_with_threads`. After that, the destructor of an
/// unfinished load and the constructor of a new one never return, so their threads don't touch anything that
/// `exit` destroys. If the work itself calls `exit`, the process ends without destroying anything, since
/// other threads are still running, and says so on standard error.
///
/// The destructor of a static object that joins a loading thread sets `is_given_up` first, so that the load
/// returns even then.
class OwnWork {
 public:
  enum Kind { job, load };

  explicit OwnWork(Kind kind, const std::atomic<bool>* is_given_up = nullptr);
  OwnWork(const OwnWork&) = delete;
  OwnWork& operator=(const OwnWork&) = delete;
  ~OwnWork();

  /// Marks this thread as the one that does the work, if another thread constructed this object.
  void enter() noexcept;

 private:
  void stay_while_exiting() const noexcept;

  Kind kind_;
  const std::atomic<bool>* is_given_up_;
  ForkMark mark_;
};

/// Writes `why` to standard error and ends the process without running exit handlers.
[[noreturn]] void end_process(const char* why, int status) noexcept;

}  // namespace etude::inline v0::detail
