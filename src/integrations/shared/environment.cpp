#include "etude/integrations/shared/environment.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <system_error>

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

std::string system_name() {
  utsname system{};
  ::uname(&system);
  return fmt::format("{}-{}-{}", system.sysname, system.release, system.machine);
}

std::string program_path() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::tm local_time(std::time_t time) {
  std::tm local{};
  ::localtime_r(&time, &local);
  return local;
}

std::int64_t unix_milliseconds() {
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

}  // namespace etude::inline v0::detail
