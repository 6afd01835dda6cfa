#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/io/descriptor.hpp"

namespace etude::inline v0::detail {

/// Starts this program again as a child process with the same arguments. Once the child has called
/// `end_with_parent`, it ends when this process ends.
class ChildProgram {
 public:
  struct Options {
    std::vector<std::pair<std::string, std::string>> environment;  ///< added to this process's environment
    std::filesystem::path output;  ///< standard output and error are appended to this file
    int kept_open = -1;            ///< a descriptor that the child keeps open, or -1
  };
  struct Exit {
    int code;    ///< the exit status
    int signal;  ///< the signal that ended it, or 0
    std::string text() const;
  };

  /// Throws Error if the process can't be started.
  explicit ChildProgram(const Options& options);
  ChildProgram(ChildProgram&& other) noexcept
      : process_(std::exchange(other.process_, -1)), life_line_(std::move(other.life_line_)) {}
  ChildProgram& operator=(ChildProgram&& other) noexcept;
  /// Asks a running child to end, and waits for it.
  ~ChildProgram();

  /// Asks the child to end as SIGTERM would, unless it is already ending because of a signal.
  void ask_to_end();

  /// Ends the child at once.
  void kill();

  /// Returns how the child ended, or nothing while it runs.
  std::optional<Exit> poll();

 private:
  pid_t process_ = -1;
  Descriptor life_line_;  // this process's end of a socket pair; it closes when the process ends
};

/// Call this in a child: from then on, when its parent asks it to end, or ends, the child reacts as it does
/// to SIGTERM. Until then, its parent sends it a real SIGTERM.
void end_with_parent();

}  // namespace etude::inline v0::detail
