#include "etude/integrations/shared/append_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "etude/base/error.hpp"

namespace etude::inline v0::detail {

AppendFile::AppendFile(const std::filesystem::path& path, unsigned mode)
    : file_(uninterrupted([&] {
        return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, mode);
      })) {
  if (!file_)
    throw ArgumentError(fmt::format("{} can't be written: {}", path.string(), std::strerror(errno)));
}

bool AppendFile::append(std::string_view record) noexcept {
  auto rest = record;
  while (!rest.empty()) {
    const auto count = uninterrupted([&] { return ::write(file_.get(), rest.data(), rest.size()); });
    if (count <= 0) {
      error_ = count == 0 ? ENOSPC : errno;
      ++lost_;
      if (rest.size() < record.size() &&
          uninterrupted([&] { return ::ftruncate(file_.get(), static_cast<off_t>(size_)); }) != 0)
        file_.close();  // a partial record stays: the next one would be read as its end
      return false;
    }
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  size_ += static_cast<std::int64_t>(record.size());
  ++written_;
  return true;
}

bool AppendFile::clear() noexcept {
  if (uninterrupted([&] { return ::ftruncate(file_.get(), 0); }) != 0) return false;
  size_ = 0;
  return true;
}

void AppendFile::sync() noexcept {
  if (file_) flush_to_disk(file_.get());
}

}  // namespace etude::inline v0::detail
