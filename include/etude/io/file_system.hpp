#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"

namespace etude {

/// A file that is being written. Destroyed before it is finished it is only closed: what it holds may be cut
/// short.
class OutputFile {
 public:
  OutputFile() = default;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  virtual ~OutputFile() = default;

  /// Appends all of `bytes`. Throws CheckpointError with the path and the system's reason.
  virtual void write(std::span<const std::byte> bytes) = 0;
  /// Waits until the bytes are on the disk, and closes. Nothing may be written afterwards.
  virtual void finish() = 0;
};

/// What checkpoints are written through: here the POSIX calls. Derive from it to write elsewhere as well, or
/// to see what a failing disk does. Every method throws CheckpointError with the path and the system's
/// reason; a file system that writes elsewhere must override all of them, and keep `rename` atomic.
class FileSystem {
 public:
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  /// An empty file at `path`, in place of one that is there. A symbolic link there is an error.
  ETUDE_INLINE virtual std::unique_ptr<OutputFile> create(const std::filesystem::path& path);

  /// Makes the folder and those above it that are missing, each on the disk when this returns.
  ETUDE_INLINE virtual void create_directories(const std::filesystem::path& path);

  /// Puts a file in the place of another, or a folder where none is, at once for everybody who looks.
  ETUDE_INLINE virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to);

  /// Puts each of two files or folders in the place of the other, at once. False, and nothing is changed,
  /// where this can't be done.
  ETUDE_INLINE virtual bool exchange(const std::filesystem::path& a, const std::filesystem::path& b);

  /// Makes `link`, a symbolic link to `target`. False where the file system has none.
  ETUDE_INLINE virtual bool create_symlink(const std::filesystem::path& target,
                                           const std::filesystem::path& link);

  /// Removes a file, or a folder with all that is in it. One that isn't there is no error.
  ETUDE_INLINE virtual void remove_all(const std::filesystem::path& path);

  /// Waits until a file's bytes, or a folder's list of names, are on the disk.
  ETUDE_INLINE virtual void sync(const std::filesystem::path& path);
};

/// The file system of this machine.
FileSystem& default_file_system();

namespace detail {

CheckpointError file_error(const std::filesystem::path& path, std::string_view what, int reason);

/// 16 hexadecimal digits that nobody else has.
std::string random_name();

/// Lets `write(file)` write beside `path`, as ".NAME.(random).partial", and puts it there when it is whole
/// and on the disk.
void write_atomically(FileSystem& files, const std::filesystem::path& path,
                      const std::function<void(OutputFile&)>& write);

}  // namespace detail

/// Writes a file so that after a crash at any moment it is the old one or the new one, whole.
void write_file(FileSystem& files, const std::filesystem::path& path, std::string_view text);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/io/impl/file_system.ipp"
#endif
