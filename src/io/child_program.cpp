#include "etude/io/child_program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/base/read_file.hpp"
#include "etude/io/descriptor.hpp"

extern char** environ;

namespace etude::inline v0::detail {

namespace {

/// Holds the descriptor of the child's end of the socket pair.
constexpr const char* life_line_variable = "ETUDE_LIFE_LINE";

std::vector<std::string> own_arguments() {
  const auto text = read_file("/proc/self/cmdline").value_or("");
  std::vector<std::string> words;
  for (std::string_view left = text; !left.empty();) {
    const auto end = std::min(left.find('\0'), left.size());
    words.emplace_back(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  if (words.empty())
    throw Error("/proc/self/cmdline can't be read, so this program can't start itself again");
  return words;
}

}  // namespace

std::string ChildProgram::Exit::text() const {
  if (signal != 0)
    return fmt::format("its process was ended by signal {}{}", signal,
                       signal == SIGKILL ? ", perhaps because memory ran out" : "");
  return fmt::format("its process ended with exit status {}", code);
}

ChildProgram::ChildProgram(const Options& options) {
  auto words = own_arguments();
  std::vector<std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view variable(*each);
    const auto name = variable.substr(0, variable.find('='));
    if (std::ranges::none_of(options.environment, [&](const auto& given) { return given.first == name; }))
      variables.emplace_back(variable);
  }
  for (const auto& [name, value] : options.environment) variables.push_back(name + "=" + value);
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (auto& text : texts) all.push_back(text.data());
    all.push_back(nullptr);
    return all;
  };
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
    throw Error(fmt::format("can't create sockets: {}", std::generic_category().message(errno)));
  const Descriptor child_end(pair[0]);
  life_line_ = Descriptor(pair[1]);
  variables.push_back(fmt::format("{}={}", life_line_variable, child_end.get()));
  const auto arguments = pointers(words), environment = pointers(variables);
  const Descriptor output(uninterrupted(
      [&] { return ::open(options.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666); }));
  if (!output)
    throw Error(fmt::format("{}: {}", options.output.string(), std::generic_category().message(errno)));
  process_ = ::fork();
  if (process_ < 0)
    throw Error(fmt::format("can't start a process: {}", std::generic_category().message(errno)));
  if (process_ != 0) return;
  // Only system calls are safe in the child, since locks of other threads may be held.
  ::dup2(output.get(), STDOUT_FILENO);
  ::dup2(output.get(), STDERR_FILENO);
  ::fcntl(child_end.get(), F_SETFD, 0);
  if (options.kept_open >= 0) ::fcntl(options.kept_open, F_SETFD, 0);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve("/proc/self/exe", arguments.data(), environment.data());
  ::_exit(127);
}

std::optional<ChildProgram::Exit> ChildProgram::poll() {
  int status = 0;
  const auto ended = uninterrupted([&] { return ::waitpid(process_, &status, WNOHANG); });
  if (ended == 0) return {};
  process_ = -1;
  if (ended < 0) return Exit{.code = 127, .signal = 0};  // the program has already waited for this child
  if (WIFSIGNALED(status)) return Exit{.code = 0, .signal = WTERMSIG(status)};
  return Exit{.code = WEXITSTATUS(status), .signal = 0};
}

void ChildProgram::ask_to_end() {
  if (!life_line_ || process_ <= 0) return;
  char listens;
  if (::recv(life_line_.get(), &listens, 1, MSG_DONTWAIT) != 1) ::kill(process_, SIGTERM);
  life_line_ = {};
}

void ChildProgram::kill() {
  if (process_ > 0) ::kill(process_, SIGKILL);
}

ChildProgram::~ChildProgram() {
  if (process_ <= 0) return;
  ask_to_end();
  uninterrupted([&] { return ::waitpid(process_, nullptr, 0); });
}

void end_with_parent() {
  const char* given = std::getenv(life_line_variable);
  if (given == nullptr) return;
  const int end = std::atoi(given);
  ::unsetenv(life_line_variable);
  ::fcntl(end, F_SETFD, FD_CLOEXEC);
  // Tells the parent that this child listens. If the parent has already ended, the read below notices.
  [[maybe_unused]] const auto said = ::send(end, "", 1, MSG_NOSIGNAL);
  std::thread([end] {
    char none;
    uninterrupted([&] { return ::read(end, &none, 1); });
    SignalGuard::receive(SIGTERM);
  }).detach();
}

ChildProgram& ChildProgram::operator=(ChildProgram&& other) noexcept {
  std::swap(process_, other.process_);
  std::swap(life_line_, other.life_line_);
  return *this;
}

}  // namespace etude::inline v0::detail
