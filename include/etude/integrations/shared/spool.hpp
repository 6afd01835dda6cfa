#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "etude/integrations/shared/append_file.hpp"
#include "etude/io/folder_lock.hpp"

namespace etude::detail {

/// What is to be sent to a server, and isn't yet, in a folder that only its owner may read: a queue on the
/// disk. What is appended survives the process, and a batch is all that is ever held in memory. One thread
/// may append while another takes from the front.
///
/// By its locks a spool tells that its process lives. They may not be seen from other machines, so that only
/// the machine that made a spool takes it up again; and where the file system has no locks, nobody does.
class Spool {
 public:
  /// A new one within `directory`, for the entries that `tracker` sends to `target`, an address without
  /// credentials. Throws ArgumentError where it can't be made.
  Spool(const std::filesystem::path& directory, const std::string& tracker, const std::string& target);

  /// Those that processes of this machine which have ended left behind, oldest first. What they left half
  /// made is removed.
  static std::vector<std::unique_ptr<Spool>> abandoned(const std::filesystem::path& directory,
                                                       const std::string& tracker, const std::string& target);

  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;
  /// Removes the folder if nothing is left in it.
  ~Spool();

  /// Adds an entry at the end; false, and it is lost, if the disk is full or more than `max_bytes` wait.
  bool append(const nlohmann::ordered_json& entry, std::int64_t max_bytes) noexcept;

  struct Front {
    std::vector<nlohmann::ordered_json> entries;
    std::vector<std::int64_t> ends;  ///< Where each of them ends in the file.
    std::int64_t unreadable = 0;     ///< Lines among them that are none.
    std::int64_t end = 0;            ///< Where the last line that was looked at ends.
  };
  /// The first entries: at most so many, of at most about so many bytes; at least one if there is any.
  Front front(std::size_t max_entries, std::size_t max_bytes) const;

  /// Everything before `end` is done with, and `memory` is what whoever goes on has to know.
  void advance(std::int64_t end, const nlohmann::ordered_json& memory);

  bool empty() const;
  std::int64_t count() const;  ///< Entries that wait.
  const nlohmann::ordered_json& memory() const { return memory_; }
  const std::filesystem::path& folder() const { return folder_; }

  /// Keeps a file as it is now, also when it is removed where it is: as a hard link, or a copy where the file
  /// system has none between the two. Returns its name here. Throws ArgumentError if it can't, and where kept
  /// files that are nowhere else take more than `max_bytes`, or would leave less than these, or than a tenth
  /// of the disk if that is less, free once all of them are nowhere else.
  std::string keep(const std::filesystem::path& file, std::int64_t max_bytes);
  /// Removes a kept file.
  void let_go(const std::string& name) const;
  /// Where a kept file is. Throws ArgumentError for a name that `keep` can't have given.
  std::filesystem::path kept(const std::string& name) const;

 private:
  explicit Spool(std::filesystem::path folder);
  bool take_lock();
  bool take_over(const std::string& tracker, const std::string& target);
  void open_entries();
  bool write_down(std::int64_t begin) const;

  std::filesystem::path folder_;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<LockFile> file_lock_;  // network file systems show it to other machines
  mutable std::mutex mutex_;             // of the sizes and the file's end
  AppendFile end_;
  Descriptor entries_;
  std::int64_t begin_ = 0, size_ = 0, waiting_ = 0;
  nlohmann::ordered_json memory_ = nlohmann::ordered_json::object();
  std::int64_t kept_ = 0;
};

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/shared/impl/spool.ipp"
#endif
