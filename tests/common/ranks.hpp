#pragma once

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/child.hpp"
#include "etude/io/launch.hpp"
#include "etude/parallel/gloo.hpp"

namespace toy {

/// Returns a free TCP port. It lies below the ports that systems give to outgoing connections, because an
/// outgoing connection could take the port before a rank listens.
inline std::int64_t free_port() {
  std::random_device random;
  for (;;) {
    const auto port = std::uniform_int_distribution<std::uint16_t>(10000, 32000)(random);
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(socket >= 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    const bool is_free = ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(socket);
    if (is_free) return port;
  }
}

using Met = std::unique_ptr<etude::Communicator>;

/// The message of each rank's exception, or "".
using Faults = std::vector<std::string>;

/// Locked while ranks in threads check something, since doctest's assertions wait for each other.
inline std::mutex checks;

/// Runs `act` as each of `world_size` ranks, in threads of this process that are connected by Gloo, or by the
/// communicator that `over` makes from Gloo's.
inline Faults as_ranks(std::int64_t world_size, const std::function<void(etude::Communicator&)>& act,
                       std::chrono::milliseconds timeout = std::chrono::seconds(30),
                       const std::function<Met(Met)>& over = {}) {
  const auto port = free_port();
  Faults faults(static_cast<std::size_t>(world_size));
  std::vector<std::jthread> ranks;
  for (std::int64_t rank = 0; rank < world_size; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        const etude::Launch launch{.rank = rank,
                                   .world_size = world_size,
                                   .local_rank = rank,
                                   .local_world_size = world_size,
                                   .launcher = "torchrun",
                                   .master_addr = "127.0.0.1",
                                   .master_port = port};
        auto communicator =
            etude::join_with_gloo(launch, {.timeout = timeout, .grace = std::chrono::milliseconds(200)});
        if (over) communicator = over(std::move(communicator));
        act(*communicator);
      } catch (const std::exception& error) {
        faults[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  ranks.clear();
  return faults;
}

/// Whether this process is a rank that Processes started.
inline bool is_rank() { return std::getenv("ETUDE_TEST_RANK") != nullptr; }

/// Runs one test case of this program again, in `world_size` processes that find their ranks in the
/// environment as torchrun sets it. The test case branches on is_rank(). At the end, processes that still run
/// are killed, and the output of each one that failed is printed.
class Processes {
 public:
  /// `environment` has entries like "NAME=value".
  Processes(std::int64_t world_size, std::string test_case,
            const std::vector<std::string>& environment = {}) {
    std::ranges::replace(test_case, ',', '?');  // a comma would end doctest's pattern
    const auto port = free_port();
    for (std::int64_t rank = 0; rank < world_size; ++rank)
      ranks_.push_back(start(rank, world_size, port, test_case, environment));
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes() {
    for (auto& rank : ranks_) {
      if (rank.end.empty()) {
        ::kill(rank.process, SIGKILL);
        ::waitpid(rank.process, nullptr, 0);
      }
      if (rank.end != "exit 0") std::fprintf(stderr, "%s", text_of(rank).c_str());
      std::fclose(rank.output);
    }
  }

  void signal(std::int64_t rank, int number) { ::kill(at(rank).process, number); }

  /// Waits for a rank to end, and returns how it ended, as toy::end_of() does.
  const std::string& end(std::int64_t rank) {
    auto& ended = at(rank);
    if (ended.end.empty()) ended.end = end_of(ended.process, std::chrono::minutes(4));
    return ended.end;
  }
  std::vector<std::string> ends() {
    std::vector<std::string> result;
    for (std::size_t i = 0; i < ranks_.size(); ++i) result.push_back(end(static_cast<std::int64_t>(i)));
    return result;
  }

  /// The output of a rank so far.
  std::string output(std::int64_t rank) { return text_of(at(rank)); }

 private:
  struct Rank {
    pid_t process = 0;
    std::FILE* output = nullptr;
    std::string end = {};
  };

  Rank& at(std::int64_t rank) { return ranks_.at(static_cast<std::size_t>(rank)); }

  static Rank start(std::int64_t rank, std::int64_t world_size, std::int64_t port,
                    const std::string& test_case, const std::vector<std::string>& more) {
    const auto number = [](const char* name, std::int64_t value) { return name + std::to_string(value); };
    std::vector<std::string> environment{
        number("ETUDE_TEST_RANK=", rank),  number("RANK=", rank),
        number("WORLD_SIZE=", world_size), number("LOCAL_RANK=", rank),
        number("MASTER_PORT=", port),      number("LOCAL_WORLD_SIZE=", world_size),
        "MASTER_ADDR=127.0.0.1",           "OMP_NUM_THREADS=1"};
    environment.insert(environment.begin(), more.begin(), more.end());
    for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
    std::vector<std::string> arguments{"ranks", "--no-skip", "--test-case=" + test_case};
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> result;
      for (auto& text : texts) result.push_back(text.data());
      result.push_back(nullptr);
      return result;
    };

    Rank result{.output = std::tmpfile()};
    if (!result.output) throw std::system_error(errno, std::generic_category(), "tmpfile");
    ::posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
      ::posix_spawn_file_actions_adddup2(&actions, ::fileno(result.output), stream);
    const int error = ::posix_spawn(&result.process, "/proc/self/exe", &actions, nullptr,
                                    pointers(arguments).data(), pointers(environment).data());
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::system_error(error, std::generic_category(), "posix_spawn");
    return result;
  }

  static std::string text_of(const Rank& rank) {
    std::string text;
    std::vector<char> buffer(4096);
    ::off_t at = 0;
    for (::ssize_t size; (size = ::pread(::fileno(rank.output), buffer.data(), buffer.size(), at)) > 0;
         at += size)
      text.append(buffer.data(), static_cast<std::size_t>(size));
    return text;
  }

  std::vector<Rank> ranks_;
};

/// Runs a test case again in processes, as Processes does, and returns how each rank ended: "exit 0".
inline std::vector<std::string> in_processes(std::int64_t world_size, const std::string& test_case,
                                             const std::vector<std::string>& environment = {}) {
  return Processes(world_size, test_case, environment).ends();
}

/// Starts the test case under way again in that many processes, unless this is one of them.
inline bool launches(std::int64_t world_size, const std::vector<std::string>& environment = {}) {
  if (is_rank()) return false;
  const std::string name = doctest::getContextOptions()->currentTest->m_name;
  CHECK(in_processes(world_size, name, environment) ==
        std::vector<std::string>(static_cast<std::size_t>(world_size), "exit 0"));
  return true;
}

/// The number of processes, and the rank, of a process that Processes started.
inline std::int64_t world_size() { return std::atoi(std::getenv("WORLD_SIZE")); }
inline std::int64_t rank() { return std::atoi(std::getenv("RANK")); }

/// While it lives, the process appears to have been started without a launcher.
class Alone {
 public:
  Alone() {
    for (auto& [name, value] : variables_) {
      value = std::getenv(name.c_str());
      ::unsetenv(name.c_str());
    }
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  ~Alone() {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::vector<std::pair<std::string, std::string>> variables_{{"RANK", ""}, {"WORLD_SIZE", ""}};
};

}  // namespace toy
