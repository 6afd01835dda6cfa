#pragma once

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail {

/// The value of an environment variable; an empty one counts as unset.
inline std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

/// Whether a text means yes.
inline bool means_yes(std::string_view text) { return read_bool(text).value_or(false); }
inline bool environment_says(const char* name) { return means_yes(environment(name).value_or("")); }

/// `option` if it was given, else the variable, else `otherwise`.
inline std::string option_or_environment(const std::string& option, const char* name,
                                         std::string_view otherwise = "") {
  return !option.empty() ? option : environment(name).value_or(std::string(otherwise));
}

/// A path with a leading ~ replaced by the home folder.
inline std::filesystem::path with_home(std::string path) {
  if (path == "~" || path.starts_with("~/")) path.replace(0, 1, environment("HOME").value_or("~"));
  return path;
}

/// The current user's name, as Python's `getpass.getuser` finds it, or the numeric id if there is none.
inline std::string user_name() {
  for (const char* name : {"LOGNAME", "USER", "LNAME", "USERNAME"})
    if (const auto value = environment(name)) return *value;
  passwd entry{}, *found = nullptr;
  std::array<char, 4096> texts{};
  if (::getpwuid_r(::geteuid(), &entry, texts.data(), texts.size(), &found) == 0 && found != nullptr)
    return found->pw_name;
  return std::to_string(::geteuid());
}

/// The name of this machine.
inline std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

}  // namespace etude::inline v0::detail
