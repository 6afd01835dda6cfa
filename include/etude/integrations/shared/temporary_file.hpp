#pragma once

#include <filesystem>
#include <string_view>

namespace etude::inline v0::detail {

/// A file in `folder` with the given bytes, which the destructor removes. Meant for code that captures files:
/// on the same disk, capturing one costs only a hard link. Only its owner may read it. Throws ArgumentError
/// if it can't be written.
class TemporaryFile {
 public:
  TemporaryFile(const std::filesystem::path& folder, std::string_view bytes);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace etude::inline v0::detail
