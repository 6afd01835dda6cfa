#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail {

/// The value of an environment variable; an empty one counts as unset.
std::optional<std::string> environment(const char* name);

/// Whether a text means yes.
inline bool means_yes(std::string_view text) { return read_bool(text).value_or(false); }
inline bool environment_says(const char* name) { return means_yes(environment(name).value_or("")); }

/// `option` if it isn't empty, or else the variable, or else `otherwise`.
inline std::string option_or_environment(const std::string& option, const char* name,
                                         std::string_view otherwise = "") {
  return !option.empty() ? option : environment(name).value_or(std::string(otherwise));
}

/// A path with a leading ~ replaced by the home folder.
std::filesystem::path with_home(std::string path);

/// The current user's name, as Python's `getpass.getuser` finds it, or the numeric id if there is none.
std::string user_name();

/// The name of this machine.
std::string host_name();

/// This machine's operating system, release and architecture: "Linux-6.1.0-x86_64".
std::string system_name();

/// The path of this program's executable.
std::string program_path();

/// The time since 1970.
double unix_seconds();
std::int64_t unix_milliseconds();

std::tm local_time(std::time_t time);

}  // namespace etude::inline v0::detail
