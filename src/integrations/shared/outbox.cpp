#include "etude/integrations/shared/outbox.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <random>

#include "etude/integrations/shared/environment.hpp"

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
    const std::lock_guard lock(mutex_);  // so the thread is either waiting or sees `cancelled_`
  }
  changed_->notify_all();
  thread_->join();
}

bool Outbox::put(const nlohmann::ordered_json& entry) {
  if (mark_.is_in_child()) {
    has_dropped_in_child_ = true;
    return false;
  }
  const bool is_taken = own_.spool->append(entry, options_.max_waiting_bytes);
  if (is_taken) {
    const std::lock_guard lock(mutex_);
    is_idle_ = false;
  } else {
    drop("full", 1,
         fmt::format("{} is full, and the newest entry is dropped", own_.spool->folder().string()));
  }
  changed_->notify_all();
  return is_taken;
}

void Outbox::put_file(nlohmann::ordered_json entry, const std::filesystem::path& file) {
  if (mark_.is_in_child()) {
    put(entry);
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
  if (!put(entry)) own_.spool->let_go(name);
}

bool Outbox::drain(std::chrono::milliseconds at_most) {
  if (mark_.is_in_child()) return false;
  std::unique_lock lock(mutex_);
  ++hurries_;
  const auto first = attempts_begun_;
  changed_->notify_all();
  // An attempt that is already running may fail for a reason that no longer holds, so it doesn't count.
  changed_->wait_for(lock, at_most, [&] { return is_idle_ || last_failed_ >= first; });
  return is_idle_;
}

void Outbox::send_rest(std::chrono::milliseconds at_most) {
  using namespace std::chrono;
  constexpr milliseconds slice(200), longest_pause(1000), longest_outage(10'000), moment(2000);
  if (mark_.is_in_child()) return;
  const auto begun = steady_clock::now();
  std::unique_lock lock(mutex_);
  auto failed = last_failed_, sent = sent_;
  std::optional<steady_clock::time_point> failing_since;
  const auto left = [&] {
    const auto longest = has_accepted_ ? at_most : std::min(at_most, moment);
    return ceil<milliseconds>(longest - (steady_clock::now() - begun));
  };
  for (auto pause = slice; left() > milliseconds(0);) {
    const auto wait = std::min(slice, left());
    const auto now = steady_clock::now();
    lock.unlock();
    const bool is_done = drain(wait);
    lock.lock();
    if (is_done || (asked_ && steady_clock::now() - *asked_ > seconds(has_accepted_ ? 5 : 1))) return;
    const bool is_early = steady_clock::now() - now < wait;  // drain() gave up early
    if (!is_early && last_failed_ == failed) continue;
    failed = last_failed_;
    // Don't retry an artifact store that hangs, or wait for another training's entries, which may never be
    // accepted.
    if (has_accepted_ ? has_hung_ || own_.spool->empty() : is_early) return;
    if (std::exchange(sent, sent_) != sent_) failing_since.reset();
    if (!failing_since) failing_since = now;
    if (steady_clock::now() - *failing_since > longest_outage) return;
    const auto rest = std::min(pause, left());
    lock.unlock();
    std::this_thread::sleep_for(rest);
    lock.lock();
    pause = std::min(2 * pause, longest_pause);
  }
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

void Outbox::idle() {
  if (!own_.sender) return;
  const OwnWork asking(OwnWork::load, &cancelled_);
  if (!cancelled_) own_.sender->idle();
}

void Outbox::run() {
  std::minstd_rand random(std::random_device{}());
  auto next_pause = options_.first_pause;
  while (!cancelled_) {
    auto* line = next_line();
    if (line == nullptr) {
      idle();
      std::unique_lock lock(mutex_);
      if (!own_.spool->empty()) continue;
      is_idle_ = true;
      changed_->notify_all();
      changed_->wait_for(lock, std::chrono::seconds(1), [&] { return cancelled_ || !is_idle_; });
      continue;
    }
    std::int64_t attempt = 0, hurries = 0;
    {
      const std::lock_guard lock(mutex_);
      attempt = attempts_begun_++;
      hurries = hurries_;
    }
    std::chrono::milliseconds at_least{0};
    std::string kind = "unknown", fault;
    bool has_timed_out = false;
    try {
      const OwnWork sending(OwnWork::load, &cancelled_);
      if (cancelled_) break;
      if (!line->sender) line->sender = make_sender_(*line->spool, cancelled_);
      send_some(*line);
      next_pause = options_.first_pause;
      continue;
    } catch (const Unreachable& unreachable) {
      if (cancelled_) break;
      at_least = unreachable.retry_after.value_or(std::chrono::seconds(0));
      kind = unreachable.kind;
      fault = unreachable.what();
      has_timed_out = unreachable.has_timed_out;
    } catch (const std::exception& error) {
      fault = error.what();
    }
    // Pauses are randomised, because many runs may be waiting for the same server.
    auto wait = std::max(next_pause, at_least);
    wait += std::chrono::milliseconds(random() % static_cast<std::uint64_t>(wait.count() / 4 + 1));
    next_pause = std::min(2 * next_pause, options_.longest_pause);
    const bool is_own = line == &own_;
    {
      const std::lock_guard lock(mutex_);
      report(kind, fault);
      last_failed_ = attempt;
      has_hung_ = sends_file_ && has_timed_out;
      asked_.reset();
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
    if (is_own) continue;
    lock.unlock();
    idle();
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
  {
    const std::lock_guard lock(mutex_);
    sends_file_ = front.entries.front().contains("kept");
    if (!sends_file_) asked_ = std::chrono::steady_clock::now();
  }
  // The server may create the run and then fail to take the rest of the entry.
  const auto note_progress = [&, known = line.sender->memory()] {
    const bool has_progress = line.sender->memory() != known;
    const std::lock_guard lock(mutex_);
    has_accepted_ |= has_progress;
  };
  std::size_t count = 0;
  try {
    count = std::clamp<std::size_t>(line.sender->send(front.entries), 1, front.entries.size());
    const std::lock_guard lock(mutex_);
    sent_ += static_cast<std::int64_t>(count);
    has_accepted_ = true;
    asked_.reset();
  } catch (const Refused& refused) {
    count = std::clamp<std::size_t>(refused.count, 1, front.entries.size());
    drop("refused", static_cast<std::int64_t>(count), refused.what());
    note_progress();
    const std::lock_guard lock(mutex_);
    asked_.reset();
  } catch (...) {
    note_progress();
    throw;
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
