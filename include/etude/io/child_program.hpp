#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/linkage.hpp"

namespace etude::inline v0::detail {

/// This program, started again as a child process with the same arguments. The child gets SIGTERM if the
/// thread that started it ends.
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
  ChildProgram(ChildProgram&& other) noexcept : process_(std::exchange(other.process_, -1)) {}
  ChildProgram& operator=(ChildProgram&& other) noexcept {
    std::swap(process_, other.process_);
    return *this;
  }
  /// Ends a child that is running, by SIGTERM.
  ~ChildProgram();

  /// How it has ended; nothing while it runs.
  std::optional<Exit> poll();

 private:
  pid_t process_ = -1;
};

}  // namespace etude::inline v0::detail

#ifndef ETUDE_COMPILED
#include "etude/io/impl/child_program.ipp"
#endif
