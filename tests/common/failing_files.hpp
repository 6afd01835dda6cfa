#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "etude/io/file_system.hpp"

namespace toy {

/// A disk on which operation number `fail_at` (from 1) fails, a write halfway through. With `crash` every
/// later one fails too, as if the process had ended there.
class FailingFiles : public etude::FileSystem {
 public:
  explicit FailingFiles(std::int64_t fail_at = 0, bool crash = false) : fail_at_(fail_at), crash_(crash) {}

  std::vector<std::string> operations;
  /// Whether the file system can exchange two folders.
  bool can_exchange = true;

  std::unique_ptr<etude::OutputFile> create(const std::filesystem::path& path) override {
    check("create", path);
    return std::make_unique<File>(*this, path, FileSystem::create(path));
  }
  void create_directories(const std::filesystem::path& path) override {
    check("create_directories", path);
    FileSystem::create_directories(path);
  }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    check("rename", from);
    FileSystem::rename(from, to);
  }
  bool exchange(const std::filesystem::path& a, const std::filesystem::path& b) override {
    if (!can_exchange) return false;
    check("exchange", a);
    return FileSystem::exchange(a, b);
  }
  bool create_symlink(const std::filesystem::path& target, const std::filesystem::path& link) override {
    check("create_symlink", link);
    return FileSystem::create_symlink(target, link);
  }
  void remove_all(const std::filesystem::path& path) override {
    check("remove_all", path);
    FileSystem::remove_all(path);
  }
  void sync(const std::filesystem::path& path) override {
    check("sync", path);
    FileSystem::sync(path);
  }

 private:
  class File : public etude::OutputFile {
   public:
    File(FailingFiles& files, std::filesystem::path path, std::unique_ptr<OutputFile> file)
        : files_(files), path_(std::move(path)), file_(std::move(file)) {}
    void write(std::span<const std::byte> bytes) override {
      try {
        files_.check("write", path_);
      } catch (...) {
        if (files_.fails_now()) file_->write(bytes.first(bytes.size() / 2));
        throw;
      }
      file_->write(bytes);
    }
    void finish() override {
      files_.check("finish", path_);
      file_->finish();
    }

   private:
    FailingFiles& files_;
    std::filesystem::path path_;
    std::unique_ptr<OutputFile> file_;
  };

  bool fails_now() const { return static_cast<std::int64_t>(operations.size()) == fail_at_; }

  void check(const std::string& operation, const std::filesystem::path& path) {
    operations.push_back(operation + " " + path.filename().string());
    const auto count = static_cast<std::int64_t>(operations.size());
    if (fail_at_ > 0 && (count == fail_at_ || (crash_ && count > fail_at_)))
      throw etude::detail::file_error(path, "can't be written", ENOSPC);
  }

  std::int64_t fail_at_;
  bool crash_;
};

}  // namespace toy
