#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "etude/io/descriptor.hpp"
#include "etude/io/file_system.hpp"

namespace toy {

/// Writes files without syncing them to the disk. `before`, if set, is called with each operation ("create",
/// "write", "finish", "create_directories", "rename", "remove_all", "sync") and its path before it is done.
/// If it throws for a write, half of the bytes are written.
class QuickFiles : public etude::FileSystem {
 public:
  using Hook = std::function<void(std::string_view operation, const std::filesystem::path&)>;
  explicit QuickFiles(Hook before = {}) : before_(std::move(before)) {}

  std::unique_ptr<etude::OutputFile> create(const std::filesystem::path& path) override {
    hear("create", path);
    return std::make_unique<File>(*this, path);
  }
  void create_directories(const std::filesystem::path& path) override {
    hear("create_directories", path);
    FileSystem::create_directories(path);
  }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    hear("rename", from);
    FileSystem::rename(from, to);
  }
  void remove_all(const std::filesystem::path& path) override {
    hear("remove_all", path);
    FileSystem::remove_all(path);
  }
  void sync(const std::filesystem::path& path) override {
    hear("sync", path);
    std::error_code error;
    if (!path.empty() && !std::filesystem::exists(path, error))
      throw etude::detail::file_error(path, "can't be written", ENOENT);
  }

 private:
  class File : public etude::OutputFile {
   public:
    File(QuickFiles& files, std::filesystem::path path)
        : files_(files),
          path_(std::move(path)),
          file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
      if (!file_) throw etude::detail::file_error(path_, "can't be written", errno);
    }
    void write(std::span<const std::byte> bytes) override {
      try {
        files_.hear("write", path_);
      } catch (...) {
        write_all(bytes.first(bytes.size() / 2));
        throw;
      }
      write_all(bytes);
    }
    void finish() override {
      files_.hear("finish", path_);
      file_.close();
    }

   private:
    void write_all(std::span<const std::byte> bytes) {
      while (!bytes.empty()) {
        const auto written = ::write(file_.get(), bytes.data(), bytes.size());
        if (written <= 0) throw etude::detail::file_error(path_, "can't be written", errno);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
      }
    }

    QuickFiles& files_;
    std::filesystem::path path_;
    etude::detail::Descriptor file_;
  };

  void hear(std::string_view operation, const std::filesystem::path& path) {
    if (before_) before_(operation, path);
  }

  Hook before_;
};

}  // namespace toy
