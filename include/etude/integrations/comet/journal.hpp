#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "etude/integrations/comet/messages.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0::detail::comet {

/// A message for the training's thread to log.
struct Notice {
  LogLevel level = LogLevel::warning;
  std::string text;
};

/// Receives an experiment's messages, for an archive or the server. `Run::use` reports what it throws.
class Journal {
 public:
  Journal() = default;
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  virtual ~Journal() = default;

  virtual void put(std::vector<Message> messages) = 0;
  /// Adds a message about `file`, which is captured as it is now.
  virtual void put_file(Message message, const std::filesystem::path& file) = 0;
  /// Called if the training throws.
  virtual void fail(const std::string& what) = 0;
  /// Called when a training is over: reports the state of the messages. More messages may follow.
  virtual void settle() = 0;
  /// Called when no more messages follow.
  virtual void finish() = 0;
  /// Messages that haven't been logged yet.
  virtual std::vector<Notice> take_notices() { return std::exchange(notices_, {}); }

 protected:
  void report(LogLevel level, std::string text) { notices_.push_back({level, std::move(text)}); }

 private:
  std::vector<Notice> notices_;
};

}  // namespace etude::inline v0::detail::comet
