#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace etude::inline v0::detail {

/// The bytes of a file, also of one in /proc, whose size isn't known; unset if it can't be read.
std::optional<std::string> read_file(const std::filesystem::path& path);

}  // namespace etude::inline v0::detail
