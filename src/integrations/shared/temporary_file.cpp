#include "etude/integrations/shared/temporary_file.hpp"

#include <fmt/format.h>

#include <cstring>
#include <system_error>

#include "etude/base/error.hpp"
#include "etude/integrations/shared/append_file.hpp"
#include "etude/io/file_system.hpp"

namespace etude::inline v0::detail {

TemporaryFile::TemporaryFile(const std::filesystem::path& folder, std::string_view bytes)
    : path_(folder / fmt::format(".sample-{}", random_name())) {
  AppendFile file(path_, 0600);
  if (file.append(bytes)) return;
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
  throw ArgumentError(fmt::format("{} can't be written: {}", path_.string(), std::strerror(file.error())));
}

TemporaryFile::~TemporaryFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace etude::inline v0::detail
