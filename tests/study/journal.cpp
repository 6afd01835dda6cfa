#include "etude/study/journal.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/message.hpp"
#include "etude/io/descriptor.hpp"
#include "etude/io/disk_full.hpp"

namespace study_journal_test {

using etude::detail::JournalFile;

std::vector<std::string> texts(JournalFile& file) {
  std::vector<std::string> result;
  for (const auto& record : file.read()) result.push_back(record.dump());
  return result;
}

TEST_CASE("each reader has each record once") {
  const toy::Folder folder;
  JournalFile a(folder / "j"), b(folder / "j");
  a.append({R"({"n":1})", R"({"n":2})"});
  CHECK(texts(b) == std::vector<std::string>{R"({"n":1})", R"({"n":2})"});
  CHECK(texts(b).empty());
  b.append({R"({"n":3})"});
  CHECK(texts(b) == std::vector<std::string>{R"({"n":3})"});
  CHECK(texts(a).size() == 3);
  CHECK(toy::names_in(folder / "") == toy::Names{"j"});  // no lock is left
}

TEST_CASE("a record whose writer died isn't read, and the next writer overwrites it with spaces") {
  const toy::Folder folder;
  JournalFile file(folder / "j");
  file.append({R"({"n":1})"});
  std::ofstream(folder / "j", std::ios::app) << R"({"n":)";
  CHECK(texts(file) == std::vector<std::string>{R"({"n":1})"});
  file.append({R"({"n":2})"});
  CHECK(texts(file) == std::vector<std::string>{R"({"n":2})"});
  std::ifstream whole(folder / "j");
  CHECK(std::string(std::istreambuf_iterator(whole), {}) == "{\"n\":1}\n     {\"n\":2}\n");
}

TEST_CASE("a writer that loses its lock overwrites nothing, and decides anew") {
  const toy::Folder folder;
  JournalFile stalled(folder / "j"), other(folder / "j");
  stalled.append({R"({"n":1})"});
  int calls = 0;
  stalled.append_exclusively([&] {
    // While this process is suspended, another removes the lock and writes.
    if (++calls == 1) {
      std::filesystem::remove(folder / "j.lock");
      other.append({R"({"n":2})"});
    }
    return std::vector<std::string>{R"({"n":3})"};
  });
  CHECK(calls == 2);
  CHECK(texts(stalled) == std::vector<std::string>{R"({"n":1})", R"({"n":2})", R"({"n":3})"});
}

TEST_CASE("a writer that loses its lock leaves that of the next one") {
  const toy::Folder folder;
  JournalFile stalled(folder / "j");
  stalled.append_exclusively([&] {
    std::filesystem::remove(folder / "j.lock");
    std::filesystem::create_symlink(folder / "j", folder / "j.lock");
    return std::vector<std::string>{};
  });
  CHECK(std::filesystem::is_symlink(folder / "j.lock"));
}

TEST_CASE("a writer that loses its lock just before it writes keeps what others have appended") {
  // Two writers at once, as if there were no lock: both append complete lines.
  const toy::Folder folder;
  JournalFile a(folder / "j"), b(folder / "j");
  std::ofstream(folder / "j", std::ios::app) << R"({"to)";
  a.append_exclusively([&] {
    std::filesystem::remove(folder / "j.lock");
    b.append({R"({"n":1})"});
    return std::vector<std::string>{};
  });
  a.append({R"({"n":2})"});
  CHECK(texts(b) == std::vector<std::string>{R"({"n":1})", R"({"n":2})"});
}

TEST_CASE("without room nothing of a record remains, and the next one is read") {
  const toy::Folder folder;
  JournalFile file(folder / "j");
  file.append({R"({"n":1})"});
  struct rlimit before {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit limit {
    .rlim_cur = 20, .rlim_max = before.rlim_max
  };
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::string text;
  try {
    file.append({R"({"n":22})", R"({"text":"longer than the room"})"});
  } catch (const etude::DiskFullError& error) {
    text = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(text == (folder / "j").string() + ": can't be written: File too large");
  CHECK(toy::names_in(folder / "") == toy::Names{"j"});
  file.append({R"({"n":3})"});
  // The first of the two records was complete.
  CHECK(texts(file) == std::vector<std::string>{R"({"n":1})", R"({"n":22})", R"({"n":3})"});
}

TEST_CASE("a signal doesn't end a writer before it has released its lock") {
  const toy::Folder folder;
  const auto child = ::fork();
  if (child == 0) {
    std::signal(SIGTERM, SIG_DFL);
    JournalFile(folder / "j").append_exclusively([] {
      ::raise(SIGTERM);
      return std::vector<std::string>{R"({"n":1})"};
    });
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
  JournalFile file(folder / "j");
  CHECK(texts(file) == std::vector<std::string>{R"({"n":1})"});
  CHECK(toy::names_in(folder / "") == toy::Names{"j"});
}

TEST_CASE("who waits for the lock says who has it") {
  const toy::Folder folder;
  JournalFile file(folder / "j");
  std::filesystem::create_symlink(folder / "j", folder / "j.lock");
  // Held by a process on this machine, which has also locked the file with flock().
  const etude::detail::Descriptor holder(::open((folder / "j").c_str(), O_RDONLY));
  REQUIRE(::flock(holder.get(), LOCK_EX) == 0);
  std::string said;
  const auto before = etude::set_message_handler([&](std::string_view, std::string_view text) {
    said = text;
    std::filesystem::remove(folder / "j.lock");
  });
  file.append({R"({"n":1})"});
  etude::set_message_handler(before);
  CHECK(said.starts_with((folder / "j").string() + ": waiting for " + (folder / "j.lock").string() +
                         ", which "));
  CHECK(said.find(" has held since 20") != said.npos);
  if (std::ifstream("/proc/locks")) CHECK(said.find(fmt::format("process {} has", ::getpid())) != said.npos);
  CHECK(texts(file) == std::vector<std::string>{R"({"n":1})"});
}

TEST_CASE("a file that has become shorter is reported") {
  const toy::Folder folder;
  JournalFile file(folder / "j");
  file.append({R"({"n":1})", R"({"n":2})"});
  file.read();
  std::filesystem::resize_file(folder / "j", 8);
  CHECK(toy::fault_of<etude::CheckpointError>([&] { file.read(); }) ==
        (folder / "j").string() +
            ": has 8 bytes, though it had 16 before: must not be shortened while it is used");
}

TEST_CASE("lone surrogates, which Python writes for bytes that aren't UTF-8, are read") {
  const toy::Folder folder;
  JournalFile file(folder / "j");
  file.append({R"({"path":"\\udc \udcff \ud800x \ud83d\ude00"})"});
  CHECK(file.read().at(0)["path"] == "\\udc \xEF\xBF\xBD \xEF\xBF\xBDx \xF0\x9F\x98\x80");
}

TEST_CASE("writers in several threads lose no record") {
  const toy::Folder folder;
  constexpr int writers = 4, each = 50;
  {
    std::vector<std::jthread> threads;
    for (int writer = 0; writer < writers; ++writer)
      threads.emplace_back([&, writer] {
        JournalFile file(folder / "j");
        for (int i = 0; i < each; ++i)
          file.append({R"({"writer":)" + std::to_string(writer) + R"(,"i":)" + std::to_string(i) + "}"});
      });
  }
  std::vector<int> next(writers);
  JournalFile file(folder / "j");
  for (const auto& record : file.read()) CHECK(record["i"] == next[record["writer"].get<std::size_t>()]++);
  CHECK(next == std::vector<int>(writers, each));
}

TEST_CASE("a line that isn't a JSON object is named") {
  const toy::Folder folder;
  std::ofstream(folder / "j") << "{}\n[1]\n";
  JournalFile file(folder / "j");
  const auto path = (folder / "j").string();
  CHECK(toy::fault_of([&] { file.read(); }) == path + ": line 2 isn't a JSON object");
  std::ofstream(folder / "j") << "{}\n{}\n{x}\n";
  CHECK(toy::fault_of([&] { JournalFile(folder / "j").read(); }).starts_with(path + ": line 3: "));
  CHECK(toy::fault_of([&] { JournalFile(folder / "no/j"); }) ==
        (folder / "no/j").string() + ": can't be opened: No such file or directory");
}

}  // namespace study_journal_test
