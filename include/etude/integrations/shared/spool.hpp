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

namespace etude::inline v0::detail {

/// An on-disk queue of entries to send to a server, in a folder that only its owner may read. Entries survive
/// the process, and at most one batch is in memory. One thread may append while another takes from the front.
///
/// A spool's locks show that its process is alive. Other machines may not see them, so only the machine that
/// made a spool takes it up again; on file systems without locks, no process does.
///
/// SQLite isn't used, because it loses more than the damaged entry: eight damaged bytes in a page's header
/// hid two thirds of 1000 entries, and in the file's header, all of them. A child made by fork() that closes
/// its copy of the connection also makes the parent's next commit fail.
class Spool {
 public:
  /// A new spool within `directory`, for the entries that `tracker` sends to `target`, an address without
  /// credentials. Throws ArgumentError if it can't be created.
  Spool(const std::filesystem::path& directory, const std::string& tracker, const std::string& target);

  /// The spools left by ended processes of this machine, oldest first. Incomplete ones are removed.
  static std::vector<std::unique_ptr<Spool>> abandoned(const std::filesystem::path& directory,
                                                       const std::string& tracker, const std::string& target);

  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;
  /// Removes the folder if nothing is left in it.
  ~Spool();

  /// Appends an entry. Returns false, and loses the entry, if the disk is full or more than `max_bytes` are
  /// waiting.
  bool append(const nlohmann::ordered_json& entry, std::int64_t max_bytes) noexcept;

  struct Front {
    std::vector<nlohmann::ordered_json> entries;
    std::vector<std::int64_t> ends;  ///< Where each entry ends in the file.
    std::int64_t unreadable = 0;     ///< Lines that aren't entries.
    std::int64_t end = 0;            ///< Where the last examined line ends.
  };
  /// Returns the first entries: at most `max_entries`, of about `max_bytes` in total, but at least one if
  /// there is any.
  Front front(std::size_t max_entries, std::size_t max_bytes) const;

  /// Marks everything before `end` as done; `memory` is what another process needs to continue.
  void advance(std::int64_t end, const nlohmann::ordered_json& memory);

  bool empty() const;
  std::int64_t count() const;  ///< Waiting entries.
  const nlohmann::ordered_json& memory() const { return memory_; }
  const std::filesystem::path& folder() const { return folder_; }

  /// Captures a file as it is now, so that it outlives the original: as a hard link, or as a copy if the file
  /// system can't link. Returns its name in the spool. Throws ArgumentError if that fails, if kept files
  /// without an original take more than `max_bytes`, or if the disk would have less free space than
  /// `max_bytes`, or than a hundredth of its size if that is less, once all originals are gone.
  std::string keep(const std::filesystem::path& file, std::int64_t max_bytes);
  /// Removes a kept file.
  void let_go(const std::string& name) const;
  /// The path of a kept file. Throws ArgumentError for a name that `keep` can't have returned.
  std::filesystem::path kept(const std::string& name) const;

 private:
  explicit Spool(std::filesystem::path folder);
  bool take_lock();
  bool take_over(const std::string& tracker, const std::string& target);
  void open_entries();
  std::int64_t lines_between(std::int64_t begin, std::int64_t end) const;
  bool write_down(std::int64_t begin) const;

  std::filesystem::path folder_;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<LockFile> file_lock_;  // network file systems show it to other machines
  mutable std::mutex mutex_;             // guards the sizes and the file's end
  AppendFile end_;
  Descriptor entries_;
  std::int64_t begin_ = 0, size_ = 0, waiting_ = 0;
  nlohmann::ordered_json memory_ = nlohmann::ordered_json::object();
  std::int64_t kept_ = 0;
};

}  // namespace etude::inline v0::detail
