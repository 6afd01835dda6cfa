#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/integrations/shared/spool.hpp"
#include "etude/io/own_threads.hpp"

namespace etude::inline v0::detail {

/// The server can't be reached, or is unavailable for now: retry later.
struct Unreachable : Error {
  explicit Unreachable(const std::string& what, std::optional<std::chrono::seconds> after = std::nullopt,
                       std::string why = "unreachable")
      : Error(what), retry_after(after), kind(std::move(why)) {}
  std::optional<std::chrono::seconds> retry_after;  ///< Given by the server; it is never shortened.
  std::string kind;                                 ///< Only the first error of a kind is reported.
  bool has_timed_out = false;                       ///< The server didn't answer in time.
};

/// The server permanently rejects the first `count` entries, which are given up.
struct Refused : Error {
  explicit Refused(const std::string& what, std::size_t entries = 1) : Error(what), count(entries) {}
  std::size_t count;
};

/// Talks to the server in the outbox's thread; each tracker has its own.
class Sender {
 public:
  Sender() = default;
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  virtual ~Sender() = default;

  /// Sends as many leading entries as fit into one request, and returns their number: at least one. Throws
  /// Unreachable or Refused. After a kill an entry may be sent again.
  virtual std::size_t send(std::span<const nlohmann::ordered_json> entries) = 0;
  /// Data that another process needs to continue, such as the run's name on the server; saved after each
  /// batch. Must not contain credentials.
  virtual nlohmann::ordered_json memory() const { return nlohmann::ordered_json::object(); }
  /// Called about once a second while there is nothing to send.
  virtual void idle() {}
};

/// Sends entries to a server in a background thread. `put` writes them to a spool on the disk and returns,
/// whatever the server does. Unsent entries wait there until this process, or the next one with the same
/// tracker, target and directory, reaches the server. A child made by fork() sends nothing and leaves the
/// spool to its parent: entries put there are dropped.
class Outbox {
 public:
  struct Options {
    std::filesystem::path directory;  ///< The parent folder of spools.
    std::string tracker;              ///< For example "mlflow".
    std::string target;               ///< The server's address, without credentials.
    std::size_t max_entries = 1000;   ///< The most entries offered to a sender at once.
    std::size_t max_bytes = 900'000;  ///< The approximate limit on their size.
    std::int64_t max_waiting_bytes = std::int64_t{1} << 30;  ///< Entries beyond this are dropped.
    /// The maximum size of kept files that exist nowhere else any more, such as rotated checkpoints; beyond
    /// it, no more files are kept. 16 GiB hold one checkpoint of a billion parameters with its optimizer, or
    /// many of smaller models. The same amount, or a hundredth of the disk if that is less, stays free for
    /// the training.
    std::int64_t max_kept_bytes = std::int64_t{1} << 34;
    std::chrono::milliseconds first_pause{1000};      ///< The pause after an error, doubled each time.
    std::chrono::milliseconds longest_pause{60'000};  ///< The longest pause after an error.
  };
  /// Makes the sender of one spool. It aborts its work when `cancelled` becomes true.
  using MakeSender = std::function<std::unique_ptr<Sender>(const Spool&, const std::atomic<bool>& cancelled)>;

  /// Throws ArgumentError if the spool can't be created.
  Outbox(Options options, MakeSender make_sender);
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;
  /// Cancels running work. Unsent entries stay in the spool.
  ~Outbox();

  /// Returns false if the entry is dropped.
  bool put(const nlohmann::ordered_json& entry);

  /// Captures `file` as it is now and adds an entry {..., "kept": NAME}; the copy is removed once the entry
  /// is sent. The entry is dropped if the file can't be kept.
  void put_file(nlohmann::ordered_json entry, const std::filesystem::path& file);

  /// Waits until everything is sent, the server can't be reached, or the time is up. Returns true if
  /// everything was sent. Our own pauses end at once; pauses that the server requested don't.
  bool drain(std::chrono::milliseconds at_most);

  /// Like `drain`, but retries after errors if the server has accepted anything before. Waits only briefly
  /// for any other server, or one that stops responding.
  void send_rest(std::chrono::milliseconds at_most);

  struct Counts {
    std::int64_t sent = 0, waiting = 0, dropped = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
  };
  Counts counts() const;

  /// Errors that haven't been reported yet, each kind once, for the training's thread to log.
  std::vector<std::string> take_faults();

  const Spool& spool() const { return *own_.spool; }

 private:
  struct Line {
    std::unique_ptr<Spool> spool;
    std::unique_ptr<Sender> sender;
  };
  void run();
  void idle();
  void send_some(Line& line);
  void pause(bool is_own, std::int64_t hurries, std::chrono::milliseconds wait,
             std::chrono::milliseconds at_least);
  Line* next_line();
  void report(const std::string& kind, const std::string& fault);
  void drop(const std::string& kind, std::int64_t count, const std::string& why);

  ForkMark mark_;
  bool has_dropped_in_child_ = false;
  Options options_;
  MakeSender make_sender_;
  Line own_;
  std::vector<Line> left_;  // left by earlier processes
  std::atomic<bool> cancelled_ = false;
  mutable std::mutex mutex_;
  ThreadShared<std::condition_variable> changed_ = make_thread_shared<std::condition_variable>();
  std::int64_t sent_ = 0, dropped_ = 0;
  bool has_accepted_ = false;  // whether the server has accepted anything, even a part of an entry
  std::int64_t attempts_begun_ = 0, last_failed_ = -1;
  std::int64_t hurries_ = 0;
  bool is_idle_ = false;
  bool sends_file_ = false;  // in the current or latest attempt
  bool has_hung_ = false;    // the last failure was a file that timed out
  std::optional<std::chrono::steady_clock::time_point> asked_ = {};  // when a request without a file began
  std::vector<std::string> faults_, kinds_reported_;
  ThreadShared<std::thread> thread_;  // last: it uses everything above
};

/// The parent folder of spools: `directory`, or else the variable ETUDE_SPOOL_DIR, or else `.etude-spool` in
/// the working directory.
std::filesystem::path spool_directory(const std::string& directory);

}  // namespace etude::inline v0::detail
