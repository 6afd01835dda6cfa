#include "etude/integrations/shared/spool.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "common/fault_of.hpp"
#include "common/folder.hpp"

using etude::detail::Spool;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::int64_t plenty = 1 << 30;

std::filesystem::path path_of(const toy::Folder& folder) { return std::string(folder); }

std::vector<int> numbers(const Spool::Front& front) {
  std::vector<int> result;
  for (const auto& entry : front.entries) result.push_back(entry.at("n").get<int>());
  return result;
}

/// A process that appends these numbers and is killed.
void killed_after(const toy::Folder& folder, int first, int last, const std::string& target = "http://a") {
  const auto child = ::fork();
  if (child == 0) {
    Spool spool(path_of(folder), "mlflow", target);
    for (int n = first; n <= last; ++n) spool.append({{"n", n}}, plenty);
    ::raise(SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
}

std::filesystem::path only_folder_in(const std::filesystem::path& folder) {
  const auto names = toy::names_in(folder);
  REQUIRE(names.size() == 1);
  return folder / *names.begin();
}

}  // namespace

TEST_CASE("entries come out in the order in which they went in, and the memory with them") {
  toy::Folder folder;
  Spool spool(path_of(folder), "mlflow", "http://a");
  for (int n = 0; n < 5; ++n) CHECK(spool.append({{"n", n}}, plenty));
  const auto front = spool.front(3, 1000);
  CHECK(numbers(front) == std::vector{0, 1, 2});
  CHECK(spool.count() == 5);
  spool.advance(front.ends[1], {{"run", "r1"}});
  CHECK(spool.count() == 3);
  CHECK(numbers(spool.front(10, 1000)) == std::vector{2, 3, 4});
  CHECK(spool.memory() == Json{{"run", "r1"}});
}

TEST_CASE("a batch is cut where its bytes are enough, and never empty") {
  toy::Folder folder;
  Spool spool(path_of(folder), "mlflow", "http://a");
  spool.append({{"n", 1}, {"text", std::string(300'000, 'x')}}, plenty);
  for (int n = 2; n < 10; ++n) spool.append({{"n", n}, {"text", std::string(50, 'x')}}, plenty);
  CHECK(numbers(spool.front(10, 100)) == std::vector{1});
  spool.advance(spool.front(1, 100).end, {});
  CHECK(numbers(spool.front(10, 160)) == std::vector{2, 3});  // of 70 bytes each
}

TEST_CASE("what a killed process left is taken over by one that sends to the same address, once") {
  toy::Folder folder;
  killed_after(folder, 1, 1000);
  CHECK(Spool::abandoned(path_of(folder), "comet", "http://a").empty());
  CHECK(Spool::abandoned(path_of(folder), "mlflow", "http://b").empty());
  {
    auto left = Spool::abandoned(path_of(folder), "mlflow", "http://a");
    REQUIRE(left.size() == 1);
    CHECK(left[0]->count() == 1000);
    CHECK(Spool::abandoned(path_of(folder), "mlflow", "http://a").empty());  // it has an owner again
    left[0]->advance(left[0]->front(990, 1 << 20).end, {{"run", "r1"}});
  }
  auto rest = Spool::abandoned(path_of(folder), "mlflow", "http://a");
  REQUIRE(rest.size() == 1);
  CHECK(numbers(rest[0]->front(100, 1 << 20)) ==
        std::vector{991, 992, 993, 994, 995, 996, 997, 998, 999, 1000});
  CHECK(rest[0]->memory() == Json{{"run", "r1"}});
  rest[0]->advance(rest[0]->front(100, 1 << 20).end, {});
  rest.clear();
  CHECK(toy::names_in(path_of(folder)).empty());
}

TEST_CASE("of several that were left the oldest comes first") {
  toy::Folder folder;
  for (int n = 1; n <= 3; ++n) {
    killed_after(folder, n, n);
    ::usleep(20'000);
  }
  const auto left = Spool::abandoned(path_of(folder), "mlflow", "http://a");
  REQUIRE(left.size() == 3);
  for (int n = 0; n < 3; ++n)
    CHECK(numbers(left[static_cast<std::size_t>(n)]->front(9, 999)) == std::vector{n + 1});
}

TEST_CASE("a line that was cut short, or is no object, is passed over") {
  toy::Folder folder;
  killed_after(folder, 1, 1);
  const auto entries = only_folder_in(path_of(folder)) / "entries.jsonl";
  toy::write_text(entries, toy::read_text(entries) + "{\"n\": \n7\n[]\n{\"n\":2}\n{\"n\":3");
  auto left = Spool::abandoned(path_of(folder), "mlflow", "http://a");
  REQUIRE(left.size() == 1);
  const auto front = left[0]->front(9, 999);
  CHECK(numbers(front) == std::vector{1, 2});
  CHECK(front.unreadable == 3);
  left[0]->advance(front.end, {});
  CHECK(left[0]->empty());
}

TEST_CASE("an offset that somebody changed is not believed") {
  toy::Folder folder;
  killed_after(folder, 1, 2);
  const auto spool = only_folder_in(path_of(folder));
  for (const char* text : {R"({"bytes": -5})", R"({"bytes": 1e300})", R"({"bytes": "x"})", "[]", "{"}) {
    toy::write_text(spool / "sent.json", text);
    auto left = Spool::abandoned(path_of(folder), "mlflow", "http://a");
    REQUIRE(left.size() == 1);
    CHECK(numbers(left[0]->front(9, 999)) == std::vector{1, 2});
  }
}

TEST_CASE("what says whose a spool is may be anything") {
  toy::Folder folder;
  killed_after(folder, 1, 2);
  const auto spool = only_folder_in(path_of(folder));
  const auto right = toy::read_text(spool / "run.json");
  for (const char* text : {R"({"tracker": 5, "target": []})", R"({"tracker": "mlflow"})", "7", ""}) {
    toy::write_text(spool / "run.json", text);
    CHECK(Spool::abandoned(path_of(folder), "mlflow", "http://a").empty());
  }
  toy::write_text(spool / "run.json", right);
  toy::write_text(spool / "sent.json", R"({"bytes": 0, "memory": 7})");
  const auto left = Spool::abandoned(path_of(folder), "mlflow", "http://a");
  REQUIRE(left.size() == 1);
  CHECK(left[0]->memory() == Json::object());
}

TEST_CASE("a spool that others may write, or that isn't ours, is left alone") {
  toy::Folder folder;
  killed_after(folder, 1, 2);
  const auto spool = only_folder_in(path_of(folder));
  REQUIRE(::chmod(spool.c_str(), 0777) == 0);
  CHECK(Spool::abandoned(path_of(folder), "mlflow", "http://a").empty());
  REQUIRE(::chmod(spool.c_str(), 0700) == 0);
  CHECK(Spool::abandoned(path_of(folder), "mlflow", "http://a").size() == 1);
}

TEST_CASE("only the owner may read a spool") {
  toy::Folder folder;
  const auto old = ::umask(0);
  Spool spool(path_of(folder), "mlflow", "http://a");
  ::umask(old);
  spool.append({{"n", 1}}, plenty);
  struct stat facts {};
  REQUIRE(::stat(spool.folder().c_str(), &facts) == 0);
  CHECK((facts.st_mode & 077) == 0);
  REQUIRE(::stat((spool.folder() / "entries.jsonl").c_str(), &facts) == 0);
  CHECK((facts.st_mode & 077) == 0);
}

TEST_CASE("more than may wait is not taken") {
  toy::Folder folder;
  Spool spool(path_of(folder), "mlflow", "http://a");
  CHECK(spool.append({{"n", 1}}, 16));
  CHECK(!spool.append({{"n", 2}}, 15));  // eight bytes each
  spool.advance(spool.front(1, 99).end, {});
  CHECK(spool.append({{"n", 3}}, 15));
  CHECK(numbers(spool.front(9, 99)) == std::vector{3});
}

TEST_CASE("a full disk loses the entry, and leaves no half of it") {
  toy::Folder folder;
  const auto child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    Spool spool(path_of(folder), "mlflow", "http://a");
    spool.append({{"n", 1}}, plenty);
    const rlimit limit{20, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const bool second = spool.append({{"n", 2}, {"text", "much longer than what is left"}}, plenty);
    const bool third = spool.append({{"n", 3}}, plenty);
    const auto front = spool.front(9, 999);
    ::_exit(!second && third && numbers(front) == std::vector{1, 3} && front.unreadable == 0 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("the file of a spool that is sent again and again doesn't grow") {
  toy::Folder folder;
  Spool spool(path_of(folder), "mlflow", "http://a");
  const std::string text(100'000, 'x');
  for (int n = 0; n < 40; ++n) {
    spool.append({{"n", n}, {"text", text}}, plenty);
    CHECK(numbers(spool.front(9, 999)) == std::vector{n});
    spool.advance(spool.front(9, 999).end, {});
  }
  CHECK(std::filesystem::file_size(spool.folder() / "entries.jsonl") < 1'300'000);
}

TEST_CASE("a kept file stays as it was when it is removed where it was") {
  toy::Folder folder, elsewhere;
  Spool spool(path_of(folder), "mlflow", "http://a");
  toy::write_text(elsewhere / "weights", "w1");
  const auto name = spool.keep(elsewhere / "weights");
  std::filesystem::remove(elsewhere / "weights");
  CHECK(toy::read_text(spool.kept(name)) == "w1");
  CHECK(toy::fault_of<etude::ArgumentError>([&] { spool.kept("../../etc/passwd"); }) ==
        "'../../etc/passwd' is no name of a kept file");
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>([&] { spool.keep(elsewhere / "weights"); }),
                      "can't be kept: No such file"));
}

TEST_CASE("a folder that can't be made is an error that names it") {
  toy::Folder folder;
  toy::write_text(folder / "file", "");
  CHECK(toy::contains(
      toy::fault_of<etude::ArgumentError>([&] { Spool(folder / "file", "mlflow", "http://a"); }),
      (folder / "file").string()));
}
