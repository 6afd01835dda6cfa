#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

/// A file being written. Destroying it before `finish` only closes it: its content may be incomplete.
class OutputFile {
 public:
  OutputFile() = default;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  virtual ~OutputFile() = default;

  /// Appends all of `bytes`. Throws CheckpointError with the path and the system's reason.
  virtual void write(std::span<const std::byte> bytes) = 0;
  /// Waits until the bytes are on disk, then closes the file. No writes may follow.
  virtual void finish() = 0;
};

/// Writes checkpoints; this class does so through POSIX calls. Derive from it to also write elsewhere, or to
/// simulate a failing disk. Every method throws CheckpointError with the path and the system's reason; a
/// derived class that writes elsewhere must override all of them and keep `rename` atomic.
class FileSystem {
 public:
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  /// Creates an empty file at `path`, replacing an existing one. A symbolic link there is an error.
  virtual std::unique_ptr<OutputFile> create(const std::filesystem::path& path);

  /// Creates the folder and its missing parents, and waits until they are on disk.
  virtual void create_directories(const std::filesystem::path& path);

  /// Atomically replaces a file, or moves a folder to a path that doesn't exist.
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to);

  /// Atomically exchanges two files or folders. Returns false, with nothing changed, if that is unsupported.
  virtual bool exchange(const std::filesystem::path& a, const std::filesystem::path& b);

  /// Creates `link`, another name for `file`. Returns false if the file system doesn't support it.
  virtual bool create_hard_link(const std::filesystem::path& file, const std::filesystem::path& link);
  /// Creates `link`, a symbolic link to `target`. Returns false if the file system doesn't support it.
  virtual bool create_symlink(const std::filesystem::path& target, const std::filesystem::path& link);

  /// Removes a file, or a folder with its content. Does nothing if it doesn't exist.
  virtual void remove_all(const std::filesystem::path& path);

  /// Waits until a file's bytes, or a folder's entries, are on disk.
  virtual void sync(const std::filesystem::path& path);
};

/// The file system of this machine.
FileSystem& default_file_system();

namespace detail {

CheckpointError file_error(const std::filesystem::path& path, std::string_view what, int reason);

/// 16 random hexadecimal digits.
std::string random_name();

/// Calls `write(file)` with a file ".NAME.(random).partial" next to `path`, and renames that to `path` once
/// it is complete and on disk.
void write_atomically(FileSystem& files, const std::filesystem::path& path,
                      const std::function<void(OutputFile&)>& write);

}  // namespace detail

/// Writes a file atomically: after a crash at any moment, it has either its old content or the new.
void write_file(FileSystem& files, const std::filesystem::path& path, std::string_view text);

}  // namespace etude::inline v0
