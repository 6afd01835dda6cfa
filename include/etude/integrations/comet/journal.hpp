#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "etude/integrations/comet/messages.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0::detail::comet {

/// A message for the training's thread to log.
struct Notice {
  LogLevel level = LogLevel::warning;
  std::string text;
};

/// Receives the messages of an experiment: an archive, or the server. Nothing here throws.
class Journal {
 public:
  Journal() = default;
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  virtual ~Journal() = default;

  virtual void put(std::vector<Message> messages) noexcept = 0;
  /// A message about `file`, which is captured as it is now.
  virtual void put_file(Message message, const std::filesystem::path& file) noexcept = 0;
  /// The training threw.
  virtual void fail(const std::string& what) noexcept = 0;
  /// A training is over: reports the state of the messages. More may come.
  virtual void settle() noexcept = 0;
  /// No more messages follow.
  virtual void finish() noexcept = 0;
  /// Messages that haven't been logged yet.
  virtual std::vector<Notice> notices() noexcept = 0;
};

}  // namespace etude::inline v0::detail::comet
