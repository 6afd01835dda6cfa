#include "etude/io/background.hpp"

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

BackgroundJob::~BackgroundJob() {
  if (thread_ && !thread_.get_deleter().mark.is_in_child()) thread_->join();
}

void BackgroundJob::start(std::function<void()> job) {
  wait();
  done_ = false;
  const auto work = std::make_shared<detail::OwnWork>(detail::OwnWork::job);
  thread_ = detail::make_thread_shared<std::thread>([this, job = std::move(job), work]() mutable {
    work->enter();
    run(job);
  });
}

bool BackgroundJob::has_ended() {
  if (!thread_ || thread_.get_deleter().mark.is_in_child()) return false;
  const std::lock_guard lock(mutex_);
  return done_;
}

void BackgroundJob::wait() {
  if (const auto thread = std::exchange(thread_, nullptr)) {
    if (thread.get_deleter().mark.is_in_child())
      throw Error(
          "this process was forked while its parent was writing in the background: only the parent "
          "can wait for that; end the child with _exit, or fork before train()");
    thread->join();
  }
  if (auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
}

void BackgroundJob::run(std::function<void()>& job) {
  std::exception_ptr error;
  try {
    job();
  } catch (...) {
    error = std::current_exception();
  }
  job = nullptr;
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
  done_ = true;
}

}  // namespace etude::inline v0
