#include "etude/integrations/shared/outbox.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <random>
#include <utility>

#include "etude/integrations/shared/environment.hpp"
#include "etude/io/own_threads.hpp"

namespace etude::inline v0::detail {

Outbox::Outbox(Options options, MakeSender make_sender)
    : options_(std::move(options)), make_sender_(std::move(make_sender)) {
  for (auto& spool : Spool::abandoned(options_.directory, options_.tracker, options_.target))
    left_.push_back({std::move(spool), nullptr});
  own_.spool = std::make_unique<Spool>(options_.directory, options_.tracker, options_.target);
  thread_ = make_thread_shared<std::thread>([this] { run(); });
}

Outbox::~Outbox() {
  if (mark_.is_in_child()) {
    // The spools and connections are the parent's, so they are never closed here.
    new Line(std::move(own_));
    new std::vector<Line>(std::move(left_));
    return;
  }
  cancelled_ = true;
  {
    const std::lock_guard lock(mutex_);  // so that the thread is either waiting or sees it
  }
  changed_->notify_all();
  thread_->join();
}

bool Outbox::append(const nlohmann::ordered_json& entry) {
  if (mark_.is_in_child()) {
    has_dropped_in_child_ = true;
    return false;
  }
  const bool is_taken = own_.spool->append(entry, options_.max_waiting_bytes);
  if (is_taken) {
    const std::lock_guard lock(mutex_);
    idle_ = false;
  } else {
    drop("full", 1,
         fmt::format("{} is full, and the newest entry is dropped", own_.spool->folder().string()));
  }
  changed_->notify_all();
  return is_taken;
}

void Outbox::put(const nlohmann::ordered_json& entry) { append(entry); }

void Outbox::put_file(nlohmann::ordered_json entry, const std::filesystem::path& file) {
  if (mark_.is_in_child()) {
    append(entry);
    return;
  }
  std::string name;
  try {
    name = own_.spool->keep(file, options_.max_kept_bytes);
  } catch (const Error& error) {
    drop("file", 1, error.what());
    return;
  }
  entry["kept"] = name;
  if (!append(entry)) own_.spool->let_go(name);
}

bool Outbox::drain(std::chrono::milliseconds at_most) {
  if (mark_.is_in_child()) return false;
  std::unique_lock lock(mutex_);
  ++hurries_;
  const auto first = attempts_begun_;
  changed_->notify_all();
  // An attempt that was already running at the call may fail for a reason that no longer holds, so it doesn't
  // count.
  changed_->wait_for(lock, at_most, [&] { return idle_ || last_failed_ >= first; });
  return idle_;
}

Outbox::Counts Outbox::counts() const {
  if (mark_.is_in_child()) return {};
  const std::lock_guard lock(mutex_);
  auto waiting = own_.spool->count();
  for (const auto& line : left_) waiting += line.spool->count();
  return {sent_, waiting, dropped_};
}

std::vector<std::string> Outbox::take_faults() {
  if (mark_.is_in_child()) {
    if (!std::exchange(has_dropped_in_child_, false)) return {};
    return {"this process was forked from the one that sends, and what it logs is dropped"};
  }
  const std::lock_guard lock(mutex_);
  return std::exchange(faults_, {});
}

void Outbox::report(const std::string& kind, const std::string& fault) {
  if (std::find(kinds_reported_.begin(), kinds_reported_.end(), kind) != kinds_reported_.end()) return;
  kinds_reported_.push_back(kind);
  faults_.push_back(fault);
}

void Outbox::drop(const std::string& kind, std::int64_t count, const std::string& why) {
  const std::lock_guard lock(mutex_);
  dropped_ += count;
  report(kind, why);
}

// The run's own entries come before leftovers.
Outbox::Line* Outbox::next_line() {
  if (!own_.spool->empty()) return &own_;
  std::vector<Line> done;  // destroyed after the lock is released: removing folders is slow
  const std::lock_guard lock(mutex_);
  while (!left_.empty() && left_.front().spool->empty()) {
    done.push_back(std::move(left_.front()));
    left_.erase(left_.begin());
  }
  return left_.empty() ? nullptr : &left_.front();
}

void Outbox::run() {
  std::minstd_rand random(std::random_device{}());
  auto next_pause = options_.first_pause;
  while (!cancelled_) {
    auto* line = next_line();
    if (line == nullptr) {
      if (own_.sender) {
        const OwnWork asking(OwnWork::load, &cancelled_);
        if (!cancelled_) own_.sender->idle();
      }
      std::unique_lock lock(mutex_);
      if (!own_.spool->empty()) continue;
      idle_ = true;
      changed_->notify_all();
      changed_->wait_for(lock, std::chrono::seconds(1), [&] { return cancelled_ || !idle_; });
      continue;
    }
    std::int64_t attempt = 0, hurries = 0;
    {
      const std::lock_guard lock(mutex_);
      attempt = attempts_begun_++;
      hurries = hurries_;
    }
    auto wait = next_pause;
    std::chrono::milliseconds at_least{0};
    try {
      const OwnWork sending(OwnWork::load, &cancelled_);
      if (cancelled_) break;
      if (!line->sender) line->sender = make_sender_(*line->spool, cancelled_);
      send_some(*line);
      next_pause = options_.first_pause;
      continue;
    } catch (const Unreachable& fault) {
      if (cancelled_) break;
      if (fault.retry_after) at_least = *fault.retry_after;
      const std::lock_guard lock(mutex_);
      report(fault.kind, fault.what());
    } catch (const std::exception& fault) {
      const std::lock_guard lock(mutex_);
      report("unknown", fault.what());
    }
    // The pauses are randomised, since many runs may have lost the same server.
    wait = std::max(wait, at_least);
    wait += std::chrono::milliseconds(random() % static_cast<std::uint64_t>(wait.count() / 4 + 1));
    next_pause = std::min(2 * next_pause, options_.longest_pause);
    const bool is_own = line == &own_;
    {
      const std::lock_guard lock(mutex_);
      last_failed_ = attempt;
      if (!is_own) std::rotate(left_.begin(), left_.begin() + 1, left_.end());
    }
    changed_->notify_all();
    pause(is_own, hurries, wait, at_least);
  }
}

// Leftovers may never be accepted, so nothing else waits for them.
void Outbox::pause(bool is_own, std::int64_t hurries, std::chrono::milliseconds wait,
                   std::chrono::milliseconds at_least) {
  using Clock = std::chrono::steady_clock;
  const auto begun = Clock::now();
  std::unique_lock lock(mutex_);
  const auto continues = [&] {
    return cancelled_ ||
           (Clock::now() >= begun + at_least && (hurries_ != hurries || (!is_own && !own_.spool->empty())));
  };
  for (auto now = begun; now < begun + wait; now = Clock::now()) {
    const auto slice = std::min<Clock::duration>(begun + wait - now, std::chrono::seconds(1));
    if (changed_->wait_for(lock, slice, continues)) return;
    if (is_own || !own_.sender) continue;
    lock.unlock();
    {
      const OwnWork asking(OwnWork::load, &cancelled_);
      if (!cancelled_) own_.sender->idle();
    }
    lock.lock();
  }
}

void Outbox::send_some(Line& line) {
  const auto front = line.spool->front(options_.max_entries, options_.max_bytes);
  if (front.unreadable > 0)
    drop("unreadable", front.unreadable,
         fmt::format("{} contains lines that aren't entries", line.spool->folder().string()));
  if (front.entries.empty()) {
    if (front.unreadable == 0) throw Error(fmt::format("{} can't be read", line.spool->folder().string()));
    line.spool->advance(front.end, line.sender->memory());
    return;
  }
  std::size_t count = 0;
  try {
    count = std::clamp<std::size_t>(line.sender->send(front.entries), 1, front.entries.size());
    const std::lock_guard lock(mutex_);
    sent_ += static_cast<std::int64_t>(count);
  } catch (const Refused& refused) {
    count = std::clamp<std::size_t>(refused.count, 1, front.entries.size());
    drop("refused", static_cast<std::int64_t>(count), refused.what());
  }
  line.spool->advance(count == front.entries.size() ? front.end : front.ends[count - 1],
                      line.sender->memory());
  for (std::size_t i = 0; i < count; ++i) {
    const auto kept = front.entries[i].find("kept");
    if (kept != front.entries[i].end() && kept->is_string()) line.spool->let_go(kept->get<std::string>());
  }
}

std::filesystem::path spool_directory(const std::string& directory) {
  return std::filesystem::absolute(option_or_environment(directory, "ETUDE_SPOOL_DIR", ".etude-spool"));
}

}  // namespace etude::inline v0::detail
