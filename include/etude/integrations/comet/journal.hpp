#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "etude/integrations/comet/messages.hpp"
#include "etude/training_arguments.hpp"

namespace etude::detail::comet {

/// Something for the training's thread to say.
struct Notice {
  LogLevel level = LogLevel::warning;
  std::string text;
};

/// Where the messages of an experiment go: to an archive, or to the server. None of it throws.
class Journal {
 public:
  Journal() = default;
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  virtual ~Journal() = default;

  virtual void put(std::vector<Message> messages) noexcept = 0;
  /// A message about `file`, which is kept as it is now.
  virtual void put_file(Message message, const std::filesystem::path& file) noexcept = 0;
  /// The training threw.
  virtual void fail(const std::string& what) noexcept = 0;
  /// A training is over: says what became of the messages. More may come.
  virtual void settle() noexcept = 0;
  /// Nothing more comes.
  virtual void finish() noexcept = 0;
  /// What has not been said yet.
  virtual std::vector<Notice> notices() noexcept = 0;
};

}  // namespace etude::detail::comet
