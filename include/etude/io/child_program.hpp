#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/io/descriptor.hpp"

namespace etude::inline v0::detail {

/// This program, started again as a child process with the same arguments. After
/// `end_with_parent`, the child ends if this process ends.
class ChildProgram {
 public:
  struct Options {
    std::vector<std::pair<std::string, std::string>> environment;  ///< set in addition
    std::filesystem::path output;  ///< the file that standard output and error are appended to
    int kept_open = -1;            ///< a descriptor that the child keeps open, or -1
  };
  struct Exit {
    int code;    ///< of `exit`
    int signal;  ///< that ended it, or 0
    std::string text() const;
  };

  /// Throws Error if it can't be started.
  explicit ChildProgram(const Options& options);
  ChildProgram(ChildProgram&& other) noexcept
      : process_(std::exchange(other.process_, -1)), life_line_(std::move(other.life_line_)) {}
  ChildProgram& operator=(ChildProgram&& other) noexcept;
  /// Asks a child that is running to end, and waits for it.
  ~ChildProgram();

  /// The child gets SIGTERM, unless it has got a signal itself and is ending by it.
  void ask_to_end();

  /// Ends the child at once.
  void kill();

  /// How it has ended; nothing while it runs.
  std::optional<Exit> poll();

 private:
  pid_t process_ = -1;
  Descriptor life_line_;  // an end of a pair of sockets, closed with this process
};

/// In a child, acts as on SIGTERM once its parent has asked it to end or has ended itself. A child that
/// hasn't called it yet gets SIGTERM from its parent.
void end_with_parent();

}  // namespace etude::inline v0::detail
