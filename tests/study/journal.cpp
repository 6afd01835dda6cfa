#include "etude/study/journal.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"

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

TEST_CASE("a record whose writer died isn't read, and the next writer removes it") {
  const toy::Folder folder;
  JournalFile file(folder / "j");
  file.append({R"({"n":1})"});
  std::ofstream(folder / "j", std::ios::app) << R"({"n":)";
  CHECK(texts(file) == std::vector<std::string>{R"({"n":1})"});
  file.append({R"({"n":2})"});
  CHECK(texts(file) == std::vector<std::string>{R"({"n":2})"});
  std::ifstream whole(folder / "j");
  CHECK(std::string(std::istreambuf_iterator(whole), {}) == "{\"n\":1}\n{\"n\":2}\n");
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
