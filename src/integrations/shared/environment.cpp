#include "etude/integrations/shared/environment.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace etude::inline v0::detail {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::filesystem::path with_home(std::string path) {
  if (path == "~" || path.starts_with("~/")) path.replace(0, 1, environment("HOME").value_or("~"));
  return path;
}

std::string user_name() {
  for (const char* name : {"LOGNAME", "USER", "LNAME", "USERNAME"})
    if (const auto value = environment(name)) return *value;
  passwd entry{}, *found = nullptr;
  std::array<char, 4096> texts{};
  if (::getpwuid_r(::geteuid(), &entry, texts.data(), texts.size(), &found) == 0 && found != nullptr)
    return found->pw_name;
  return std::to_string(::geteuid());
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

}  // namespace etude::inline v0::detail
