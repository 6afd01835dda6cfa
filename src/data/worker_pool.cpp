#include "etude/data/worker_pool.hpp"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "etude/base/error.hpp"

namespace etude::inline v0::detail {

WorkerPool::WorkerPool(std::vector<Dataset> datasets) {
  const int threads = at::get_num_threads();
  // In a child made by fork(), LibTorch recreates its thread pool at the next use, and crashes if two
  // threads do so at once.
  at::set_num_threads(threads);
  for (auto& dataset : datasets) shared_->workers.push_back({std::move(dataset)});
  try {
    for (std::size_t i = 0; i < shared_->workers.size(); ++i)
      threads_->emplace_back([shared = shared_, i]() mutable {
        // LibTorch sets the number of threads to the default at a thread's first use, so trigger that first.
        at::get_num_threads();
        at::set_num_threads(1);
        shared->run(shared->workers[i]);
        const OwnWork freeing(OwnWork::load);
        shared.reset();
      });
  } catch (...) {
    stop();
    throw;
  }
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [&] { return shared_->started == threads_->size(); });
  // set_num_threads also changes the default for later threads and, in old versions of LibTorch, the number
  // of MKL threads in all threads. So restore this thread's number.
  at::set_num_threads(threads);
}

std::shared_ptr<WorkerPool::Result> WorkerPool::submit(Work work) {
  require_threads();
  auto result = std::make_shared<Result>();
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->jobs.push_back({std::move(work), result});
  }
  shared_->wake.notify_one();
  return result;
}

std::optional<Batch> WorkerPool::take(Result& result) {
  require_threads();
  std::unique_lock lock(shared_->mutex);
  // Polls, because a signal handler may not notify a condition variable.
  while (!shared_->changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return result.ready; }))
    interruption_point();
  if (result.failed_example.error) last_failed_example() = std::exchange(result.failed_example, {});
  if (result.error) std::rethrow_exception(std::exchange(result.error, nullptr));
  return std::move(result.batch);
}

std::vector<Dataset> WorkerPool::stop() {
  std::vector<Dataset> datasets;
  if (mark_.is_in_child()) return datasets;
  std::deque<Job> dropped;
  std::unique_lock lock(shared_->mutex);
  shared_->stops = true;
  dropped.swap(shared_->jobs);
  shared_->wake.notify_all();
  const auto ours = std::span(shared_->workers).first(threads_->size());
  shared_->changed.wait_for(lock, patience_with_threads,
                            [&] { return std::ranges::all_of(ours, &Worker::has_ended); });
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (!ours[i].has_ended) {
      (*threads_)[i].detach();
      continue;
    }
    datasets.push_back(std::move(ours[i].dataset));
    lock.unlock();
    (*threads_)[i].join();
    lock.lock();
  }
  threads_->clear();
  return datasets;
}

void WorkerPool::Shared::run(Worker& worker) {
  std::unique_lock lock(mutex);
  ++started;
  changed.notify_one();
  for (;;) {
    wake.wait(lock, [&] { return stops || !jobs.empty(); });
    if (stops) break;
    auto job = std::move(jobs.front());
    jobs.pop_front();
    lock.unlock();
    {
      const OwnWork fetching(OwnWork::load);
      fetch(std::exchange(job, {}), worker.dataset);
    }
    lock.lock();
  }
  worker.has_ended = true;
  changed.notify_one();
}

void WorkerPool::Shared::fetch(const Job& job, Dataset& dataset) {
  const ForkMark mark;
  std::optional<Batch> batch;
  std::exception_ptr error;
  try {
    batch = job.work(dataset);
  } catch (...) {
    error = std::current_exception();
  }
  if (mark.is_in_child())
    end_process("a child made by fork() in a dataset or a collator must not return from it", EXIT_FAILURE);
  const std::lock_guard lock(mutex);
  job.result->batch = std::move(batch);
  job.result->error = std::move(error);
  job.result->failed_example = std::exchange(last_failed_example(), {});
  job.result->ready = true;
  changed.notify_one();
}

void WorkerPool::require_threads() const {
  if (mark_.is_in_child())
    throw Error(
        "this process was forked while threads were fetching data for its parent: it has none of "
        "them; end the child with _exit, or fork before train()");
}

}  // namespace etude::inline v0::detail
