#include "etude/integrations/shared/spool.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "etude/integrations/shared/outbox.hpp"

namespace integrations_shared_spool_test {

using etude::ArgumentError;
using etude::detail::FolderLock;
using etude::detail::LockFile;
using etude::detail::Spool;
using Json = nlohmann::ordered_json;

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

TEST_CASE("entries come out in the order in which they went in, with the sender's state") {
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

TEST_CASE("a batch is cut at the size limit, and never empty") {
  toy::Folder folder;
  Spool spool(path_of(folder), "mlflow", "http://a");
  spool.append({{"n", 1}, {"text", std::string(300'000, 'x')}}, plenty);
  for (int n = 2; n < 10; ++n) spool.append({{"n", n}, {"text", std::string(50, 'x')}}, plenty);
  CHECK(numbers(spool.front(10, 100)) == std::vector{1});
  spool.advance(spool.front(1, 100).end, {});
  CHECK(numbers(spool.front(10, 160)) == std::vector{2, 3});  // entries of 70 bytes each
}

TEST_CASE("a killed process's spool is taken over, once, by one that sends to the same address") {
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

TEST_CASE("the oldest of several abandoned spools comes first") {
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

TEST_CASE("a truncated line, or one that isn't an object, is skipped") {
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

TEST_CASE("a modified offset isn't trusted") {
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

TEST_CASE("a spool's address may be any text") {
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

TEST_CASE(
    "a spool of another machine is left alone, one of another container on this machine is taken over") {
  toy::Folder folder;
  killed_after(folder, 1, 2);
  const auto spool = only_folder_in(path_of(folder));
  auto run = Json::parse(toy::read_text(spool / "run.json"));
  const auto mount = run.at("mount").get<std::string>();
  const auto found = [&](const std::string& host, const std::string& its_mount) {
    run["host"] = host;
    run["mount"] = its_mount;
    toy::write_text(spool / "run.json", run.dump());
    return !Spool::abandoned(path_of(folder), "mlflow", "http://a").empty();
  };
  const auto here = run.at("host").get<std::string>();
  CHECK(!found("elsewhere", ""));
  CHECK(!found("elsewhere", "another-boot:1"));
  CHECK(found(here, "another-boot:1"));
  CHECK(found("elsewhere", mount) == !mount.empty());
  CHECK(toy::names_in(path_of(folder)).size() == 1);
}

TEST_CASE("a process on a machine of the same name keeps its spool if only its file shows the lock") {
  toy::Folder folder;
  killed_after(folder, 1, 2);
  {
    const LockFile its(only_folder_in(path_of(folder)) / "lock");
    CHECK(Spool::abandoned(path_of(folder), "mlflow", "http://a").empty());
  }
  CHECK(Spool::abandoned(path_of(folder), "mlflow", "http://a").size() == 1);

  Spool live(path_of(folder), "mlflow", "http://a");
  CHECK(LockFile(live.folder() / "lock").state() == etude::detail::LockState::taken);
}

TEST_CASE("a killed process's half-created spool is removed once it is old and unlocked") {
  toy::Folder folder;
  const auto make = [&](const std::string& name, int mode, std::chrono::minutes age) {
    REQUIRE(::mkdir((folder / name).c_str(), 0700) == 0);
    REQUIRE(::chmod((folder / name).c_str(), static_cast<::mode_t>(mode)) == 0);
    toy::write_text(folder / name / "run.json", "{");
    std::filesystem::last_write_time(folder / name, std::filesystem::file_time_type::clock::now() - age);
  };
  make(".mlflow-old", 0700, std::chrono::minutes(61));
  make(".mlflow-new", 0700, std::chrono::minutes(1));
  make(".mlflow-held", 0700, std::chrono::minutes(61));
  make(".mlflow-anybody's", 0777, std::chrono::minutes(61));
  make(".comet-old", 0700, std::chrono::minutes(61));
  const FolderLock held(folder / ".mlflow-held");
  CHECK(Spool::abandoned(path_of(folder), "mlflow", "http://a").empty());
  CHECK(toy::names_in(path_of(folder)) ==
        toy::Names{".mlflow-new", ".mlflow-held", ".mlflow-anybody's", ".comet-old"});
}

TEST_CASE("a spool that can't be written leaves nothing behind") {
  toy::Folder folder;
  const auto child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{0, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto fault = toy::fault_of<ArgumentError>([&] { Spool(path_of(folder), "mlflow", "http://a"); });
    ::_exit(toy::contains(fault, "can't be written") && toy::names_in(path_of(folder)).empty() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("a spool that others may write, or that another user owns, is left alone") {
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
  struct stat status {};
  REQUIRE(::stat(spool.folder().c_str(), &status) == 0);
  CHECK((status.st_mode & 077) == 0);
  REQUIRE(::stat((spool.folder() / "entries.jsonl").c_str(), &status) == 0);
  CHECK((status.st_mode & 077) == 0);
}

TEST_CASE("entries beyond the limit aren't accepted") {
  toy::Folder folder;
  Spool spool(path_of(folder), "mlflow", "http://a");
  CHECK(spool.append({{"n", 1}}, 16));
  CHECK(!spool.append({{"n", 2}}, 15));  // entries of eight bytes each
  spool.advance(spool.front(1, 99).end, {});
  CHECK(spool.append({{"n", 3}}, 15));
  CHECK(numbers(spool.front(9, 99)) == std::vector{3});
}

TEST_CASE("a full disk loses the entry, and leaves no part of it") {
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

TEST_CASE("the file of a spool that is sent regularly doesn't grow") {
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

TEST_CASE("a kept file is unchanged when the original is removed") {
  toy::Folder folder, elsewhere;
  Spool spool(path_of(folder), "mlflow", "http://a");
  toy::write_text(elsewhere / "weights", "w1");
  const auto name = spool.keep(elsewhere / "weights", plenty);
  std::filesystem::remove(elsewhere / "weights");
  CHECK(toy::read_text(spool.kept(name)) == "w1");
  CHECK(toy::fault_of<ArgumentError>([&] { spool.kept("../../etc/passwd"); }) ==
        "'../../etc/passwd' is not the name of a kept file");
  CHECK(toy::contains(toy::fault_of<ArgumentError>([&] { spool.keep(elsewhere / "weights", plenty); }),
                      "can't be kept: No such file"));
  spool.let_go(name);
  CHECK(!std::filesystem::exists(spool.kept(name)));
}

TEST_CASE("keeping a symbolic link keeps its target") {
  toy::Folder folder, elsewhere;
  Spool spool(path_of(folder), "mlflow", "http://a");
  toy::write_text(elsewhere / "weights", "w1");
  std::filesystem::create_symlink("weights", elsewhere / "link");
  const auto kept = spool.kept(spool.keep(elsewhere / "link", plenty));
  std::filesystem::remove(elsewhere / "weights");
  CHECK(toy::read_text(kept) == "w1");
}

TEST_CASE("kept files count once the original is gone, and none is kept beyond the limit") {
  toy::Folder folder, elsewhere;
  Spool spool(path_of(folder), "mlflow", "http://a");
  std::vector<std::string> names;
  const auto keep = [&](const std::string& name) {
    toy::write_text(elsewhere / name, "123456");
    names.push_back(spool.keep(elsewhere / name, 10));
  };
  for (const char* name : {"a", "b", "c"}) keep(name);
  for (const char* name : {"a", "b"}) std::filesystem::remove(elsewhere / name);
  CHECK(toy::fault_of<ArgumentError>([&] { keep("d"); }) ==
        (elsewhere / "d").string() + " can't be kept: files that are only in " +
            (spool.folder() / "files").string() + " may take 10 bytes");
  spool.let_go(names[0]);
  keep("d");
  CHECK(toy::names_in(spool.folder() / "files").size() == 3);
}

TEST_CASE("a file that has to be copied counts immediately") {
  toy::Folder folder;
  const std::filesystem::path other_disk = "/dev/shm/etude-" + etude::detail::random_name();
  toy::write_text(other_disk, "123456");
  struct stat here {
  }, there{};
  ::stat(std::string(folder).c_str(), &here);
  if (::stat(other_disk.c_str(), &there) == 0 && here.st_dev != there.st_dev) {
    Spool spool(path_of(folder), "mlflow", "http://a");
    CHECK(toy::read_text(spool.kept(spool.keep(other_disk, 10))) == "123456");
    CHECK(toy::contains(toy::fault_of<ArgumentError>([&] { spool.keep(other_disk, 10); }),
                        "may take 10 bytes"));
    CHECK(toy::names_in(spool.folder() / "files").size() == 1);
  }
  std::filesystem::remove(other_disk);
}

TEST_CASE("a file that would fill the disk once its original is gone isn't kept") {
  toy::Folder folder, elsewhere;
  Spool spool(path_of(folder), "mlflow", "http://a");
  const auto available = std::filesystem::space(path_of(folder)).available;
  for (const char* name : {"a", "b"}) {
    toy::write_text(elsewhere / name, "");
    std::filesystem::resize_file(elsewhere / name, available / 10 * 6);  // sparse
  }
  spool.keep(elsewhere / "a", 1);
  CHECK(toy::contains(toy::fault_of<ArgumentError>([&] { spool.keep(elsewhere / "b", 1); }),
                      "less than 1 bytes of the disk of"));
}

TEST_CASE("a folder that can't be created is an error that names it") {
  toy::Folder folder;
  toy::write_text(folder / "file", "");
  CHECK(toy::contains(toy::fault_of<ArgumentError>([&] { Spool(folder / "file", "mlflow", "http://a"); }),
                      (folder / "file").string()));
}

TEST_CASE("a relative directory of unsent data is relative to the current working folder") {
  CHECK(etude::detail::spool_directory("unsent") == std::filesystem::current_path() / "unsent");
}

}  // namespace integrations_shared_spool_test
