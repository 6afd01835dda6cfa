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

namespace etude::detail {

/// The server can't be reached, or says that it can't now: to be asked again later.
struct Unreachable : Error {
  explicit Unreachable(const std::string& what, std::optional<std::chrono::seconds> after = std::nullopt,
                       std::string why = "unreachable")
      : Error(what), retry_after(after), kind(std::move(why)) {}
  std::optional<std::chrono::seconds> retry_after;  ///< As the server has it: nothing cuts it short.
  std::string kind;                                 ///< Of the faults of one kind the first is told.
};

/// The server won't take the first `count` entries, now or later: they are given up.
struct Refused : Error {
  explicit Refused(const std::string& what, std::size_t entries = 1) : Error(what), count(entries) {}
  std::size_t count;
};

/// Speaks with the server, in the outbox's thread: what is different for each tracker.
class Sender {
 public:
  Sender() = default;
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  virtual ~Sender() = default;

  /// Sends the first of the entries, as many as go together, and says how many: at least one. Throws
  /// Unreachable or Refused. After a kill an entry may be sent once more.
  virtual std::size_t send(std::span<const nlohmann::ordered_json> entries) = 0;
  /// What has to be known to go on in another process, such as the run's name on the server: written down
  /// after each batch. No credentials.
  virtual nlohmann::ordered_json memory() const { return nlohmann::ordered_json::object(); }
  /// Called about once a second while nothing is to be sent.
  virtual void idle() {}
};

/// Sends entries to a server behind the training, in a thread of its own. `put` writes them to a spool on the
/// disk and returns, whatever the server does; what can't be sent waits there, and is sent when this process,
/// or the next one that has the same tracker, target and directory, finds the server. A child made by fork()
/// sends nothing and leaves the spool to its parent: it drops what it puts.
class Outbox {
 public:
  struct Options {
    std::filesystem::path directory;                         ///< Of spools.
    std::string tracker;                                     ///< Such as "mlflow".
    std::string target;                                      ///< The server's address, without credentials.
    std::size_t max_entries = 1000;                          ///< That a sender is offered at once.
    std::size_t max_bytes = 900'000;                         ///< Of those, about.
    std::int64_t max_waiting_bytes = std::int64_t{1} << 30;  ///< What comes beyond them is dropped.
    /// Beyond them no file is kept: bytes of kept files that are nowhere else any more, such as checkpoints
    /// that were rotated away. 16 GiB are a checkpoint of a billion parameters with its optimizer, and many
    /// of smaller models; and as much, or a tenth of the disk if that is less, stays free for the training.
    std::int64_t max_kept_bytes = std::int64_t{1} << 34;
    std::chrono::milliseconds first_pause{1000};      ///< After a fault; then twice as long each time,
    std::chrono::milliseconds longest_pause{60'000};  ///< up to this.
  };
  /// Makes the sender of one spool. It gives up what it is doing when `cancelled` becomes true.
  using MakeSender = std::function<std::unique_ptr<Sender>(const Spool&, const std::atomic<bool>& cancelled)>;

  /// Throws ArgumentError where the spool can't be made.
  Outbox(Options options, MakeSender make_sender);
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;
  /// Cancels what is under way. What is left stays in the spool.
  ~Outbox();

  void put(const nlohmann::ordered_json& entry);

  /// Keeps `file` as it is now and adds an entry {..., "kept": NAME}; it is let go when that was sent. The
  /// entry is dropped where the file can't be kept.
  void put_file(nlohmann::ordered_json entry, const std::filesystem::path& file);

  /// Waits until everything was sent, the server can't be reached, or the time is over. Whether all was sent.
  /// Pauses of our own end at once, and one that the server asked for doesn't.
  bool drain(std::chrono::milliseconds at_most);

  struct Counts {
    std::int64_t sent = 0, waiting = 0, dropped = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
  };
  Counts counts() const;

  /// What went wrong and has not been told yet, for the training's thread to say: each kind of it once.
  std::vector<std::string> take_faults();

  const Spool& spool() const { return *own_.spool; }

 private:
  struct Line {
    std::unique_ptr<Spool> spool;
    std::unique_ptr<Sender> sender;
  };
  bool append(const nlohmann::ordered_json& entry);
  void run();
  void send_some(Line& line);
  void pause(bool is_own, std::int64_t hurries, std::chrono::milliseconds wait,
             std::chrono::milliseconds at_least);
  Line* next_line();
  void tell(const std::string& kind, const std::string& fault);
  void drop(const std::string& kind, std::int64_t count, const std::string& why);

  ForkMark mark_;
  bool has_dropped_in_child_ = false;
  Options options_;
  MakeSender make_sender_;
  Line own_;
  std::vector<Line> left_;  // by processes before this one
  std::atomic<bool> cancelled_ = false;
  mutable std::mutex mutex_;
  ThreadShared<std::condition_variable> changed_ = make_thread_shared<std::condition_variable>();
  std::int64_t sent_ = 0, dropped_ = 0;
  std::int64_t attempts_begun_ = 0, last_failed_ = -1;
  std::int64_t hurries_ = 0;
  bool idle_ = false;
  std::vector<std::string> faults_, kinds_told_;
  ThreadShared<std::thread> thread_;  // the last: it uses all of these
};

/// Where spools are: `directory`, else the variable ETUDE_SPOOL_DIR, else `.etude-spool` in the working
/// directory.
std::filesystem::path spool_directory(const std::string& directory);

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/shared/impl/outbox.ipp"
#endif
