#include "etude/integrations/shared/outbox.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <thread>

#include "common/child.hpp"
#include "common/folder.hpp"

namespace integrations_shared_outbox_test {

using etude::detail::Outbox;
using etude::detail::Refused;
using etude::detail::Sender;
using etude::detail::Spool;
using etude::detail::Unreachable;
using Json = nlohmann::ordered_json;
using namespace std::chrono_literals;

/// A server that can be taken down, and that records what it receives.
struct Server {
  explicit Server(bool is_up = true) : up(is_up) {}

  std::mutex mutex;
  bool up;
  std::string fault = "http://a: Connection refused", kind = "connection";
  std::optional<std::chrono::seconds> retry_after;
  bool names_run = false;  // even while it is down
  std::atomic<bool> hangs = false, is_asked = false;
  int attempts = 0, idle = 0;
  std::vector<int> got;
  std::vector<std::size_t> batches;

  std::vector<int> received() {
    const std::lock_guard lock(mutex);
    return got;
  }
  void set_up(bool is_up) {
    const std::lock_guard lock(mutex);
    up = is_up;
  }
};

class ToServer : public Sender {
 public:
  ToServer(Server& server, const Spool& spool, const std::atomic<bool>& cancelled)
      : server_(server), cancelled_(cancelled), sent_(spool.memory().value("sent", 0)) {}

  std::size_t send(std::span<const Json> entries) override {
    server_.is_asked = true;
    while (server_.hangs)
      if (cancelled_) throw Unreachable("given up");
    const std::lock_guard lock(server_.mutex);
    ++server_.attempts;
    has_name_ |= server_.names_run;
    if (!server_.up) throw Unreachable(server_.fault, server_.retry_after, server_.kind);
    if (entries.front().at("n") == 13) throw Refused("http://a: 400 the server is superstitious");
    std::size_t count = 0;
    for (const auto& entry : entries) {
      if (entry.at("n") == 13) break;
      server_.got.push_back(entry.at("n").get<int>());
      ++count;
    }
    sent_ += static_cast<int>(count);
    server_.batches.push_back(count);
    return count;
  }
  Json memory() const override { return {{"sent", sent_}, {"has_name", has_name_}}; }
  void idle() override {
    const std::lock_guard lock(server_.mutex);
    ++server_.idle;
  }

 private:
  Server& server_;
  const std::atomic<bool>& cancelled_;
  int sent_;
  bool has_name_ = false;
};

Outbox::Options options_in(const std::string& folder) {
  return {
      .directory = folder, .tracker = "toy", .target = "http://a", .first_pause = 5ms, .longest_pause = 20ms};
}

std::unique_ptr<Outbox> outbox_to(Server& server, const Outbox::Options& options) {
  return std::make_unique<Outbox>(options, [&](const Spool& spool, const std::atomic<bool>& cancelled) {
    return std::make_unique<ToServer>(server, spool, cancelled);
  });
}

void wait_for_attempts(Server& server, int count) {
  while (true) {
    std::this_thread::sleep_for(1ms);
    const std::lock_guard lock(server.mutex);
    if (server.attempts >= count) return;
  }
}

void put(Outbox& outbox, int first, int last) {
  for (int n = first; n <= last; ++n) outbox.put({{"n", n}});
}

/// Destroyed by `exit`, like any object in static storage.
std::unique_ptr<Outbox> held_to_the_end;

std::vector<int> range(int first, int last) {
  std::vector<int> numbers;
  for (int n = first; n <= last; ++n) numbers.push_back(n);
  return numbers;
}

TEST_CASE("everything arrives, once and in order, in batches within the limit") {
  toy::Folder folder;
  Server server;
  auto options = options_in(folder);
  options.max_entries = 7;
  {
    const auto outbox = outbox_to(server, options);
    put(*outbox, 20, 519);
    CHECK(outbox->drain(10s));
    CHECK(outbox->counts() == Outbox::Counts{500, 0, 0});
    CHECK(outbox->take_faults().empty());
  }
  CHECK(server.received() == range(20, 519));
  REQUIRE(server.batches.size() > 70);
  for (const auto size : server.batches) CHECK(size <= 7);
  CHECK(toy::names_in(std::string(folder)).empty());
}

TEST_CASE("a server that is down for a while misses nothing, and the error is reported once") {
  toy::Folder folder;
  Server server(false);
  const auto outbox = outbox_to(server, options_in(folder));
  put(*outbox, 20, 29);
  wait_for_attempts(server, 3);
  put(*outbox, 30, 39);
  server.set_up(true);
  CHECK(outbox->drain(10s));
  CHECK(server.received() == range(20, 39));
  CHECK(outbox->take_faults() == std::vector<std::string>{"http://a: Connection refused"});
  CHECK(outbox->take_faults().empty());
}

TEST_CASE("errors of other kinds are reported beside the first") {
  toy::Folder folder;
  Server server(false);
  const auto outbox = outbox_to(server, options_in(folder));
  put(*outbox, 20, 29);
  for (const char* kind : {"401", "5xx", "401"}) {
    CHECK(!outbox->drain(1h));
    const std::lock_guard lock(server.mutex);
    server.fault = std::string("http://a: ") + kind;
    server.kind = kind;
  }
  CHECK(!outbox->drain(1h));
  CHECK(outbox->take_faults() ==
        std::vector<std::string>{"http://a: Connection refused", "http://a: 401", "http://a: 5xx"});
}

TEST_CASE("flushing ends the outbox's own pauses, but not those that the server requested") {
  toy::Folder folder;
  Server server(false);
  auto options = options_in(folder);
  options.first_pause = options.longest_pause = 1h;
  const auto outbox = outbox_to(server, options);
  put(*outbox, 20, 20);
  wait_for_attempts(server, 1);
  {
    const std::lock_guard lock(server.mutex);
    server.retry_after = 1s;
  }
  const auto begun = std::chrono::steady_clock::now();
  CHECK(!outbox->drain(1h));
  server.set_up(true);
  CHECK(outbox->drain(30s));
  CHECK(std::chrono::steady_clock::now() - begun > 900ms);
}

TEST_CASE("abandoned entries don't trigger a request before the server's pause is over") {
  toy::Folder folder;
  Server server(false);
  {
    const auto outbox = outbox_to(server, options_in(folder));
    put(*outbox, 20, 20);
  }
  server.retry_after = 1s;
  const auto attempts = server.attempts;
  const auto begun = std::chrono::steady_clock::now();
  const auto outbox = outbox_to(server, options_in(folder));
  wait_for_attempts(server, attempts + 1);
  server.set_up(true);
  put(*outbox, 21, 21);
  CHECK(outbox->drain(30s));
  CHECK(std::chrono::steady_clock::now() - begun > 900ms);
  CHECK(server.received() == std::vector{21, 20});
}

TEST_CASE("data that a server didn't get is sent by the next run, and nothing is lost until then") {
  toy::Folder folder;
  Server server(false);
  for (int run = 1; run <= 2; ++run) {
    const auto outbox = outbox_to(server, options_in(folder));
    put(*outbox, 100 * run, 100 * run + 9);
    const auto begun = std::chrono::steady_clock::now();
    CHECK(!outbox->drain(1h));  // one attempt shows that the server is down
    CHECK(std::chrono::steady_clock::now() - begun < 30s);
    CHECK(outbox->counts() == Outbox::Counts{0, 10 * run, 0});
  }
  server.set_up(true);
  const auto outbox = outbox_to(server, options_in(folder));
  put(*outbox, 300, 309);
  CHECK(outbox->drain(10s));
  CHECK(outbox->counts() == Outbox::Counts{30, 0, 0});
  auto got = server.received();
  std::sort(got.begin(), got.end());
  auto expected = range(100, 109);
  for (const int first : {200, 300})
    for (const int n : range(first, first + 9)) expected.push_back(n);
  CHECK(got == expected);
}

TEST_CASE("each of two concurrent runs has its own queue") {
  toy::Folder folder;
  Server down(false), up;
  const auto first = outbox_to(down, options_in(folder));
  put(*first, 1, 5);
  const auto second = outbox_to(up, options_in(folder));
  put(*second, 6, 9);
  CHECK(second->drain(10s));
  CHECK(up.received() == range(6, 9));
  CHECK(first->counts().waiting == 5);
}

TEST_CASE("an entry that the server refuses is dropped, and those after it aren't") {
  toy::Folder folder;
  Server server;
  const auto outbox = outbox_to(server, options_in(folder));
  put(*outbox, 11, 15);
  CHECK(outbox->drain(10s));
  CHECK(server.received() == std::vector{11, 12, 14, 15});
  CHECK(outbox->counts() == Outbox::Counts{4, 0, 1});
  CHECK(outbox->take_faults() == std::vector<std::string>{"http://a: 400 the server is superstitious"});
}

TEST_CASE("a hanging server delays nobody, and nothing is lost") {
  toy::Folder folder;
  Server server;
  server.hangs = true;
  const auto begun = std::chrono::steady_clock::now();
  {
    const auto outbox = outbox_to(server, options_in(folder));
    put(*outbox, 20, 29);
    CHECK(!outbox->drain(50ms));
  }
  CHECK(std::chrono::steady_clock::now() - begun < 5s);
  server.hangs = false;
  const auto outbox = outbox_to(server, options_in(folder));
  CHECK(outbox->drain(10s));
  CHECK(server.received() == range(20, 29));
}

TEST_CASE("a queue that was emptied from outside is reported as unreadable, and isn't read repeatedly") {
  toy::Folder folder;
  Server server(false);
  const auto outbox = outbox_to(server, options_in(folder));
  put(*outbox, 20, 29);
  CHECK(!outbox->drain(1h));
  std::filesystem::resize_file(outbox->spool().folder() / "entries.jsonl", 0);
  CHECK(!outbox->drain(1h));
  CHECK(outbox->take_faults() ==
        std::vector<std::string>{"http://a: Connection refused",
                                 outbox->spool().folder().string() + " can't be read"});
  CHECK(outbox->counts() == Outbox::Counts{0, 10, 0});
}

TEST_CASE("a full queue drops the newest entries, counts them, and reports it once") {
  toy::Folder folder;
  Server server(false);
  auto options = options_in(folder);
  options.max_waiting_bytes = 45;  // five entries of nine bytes
  const auto outbox = outbox_to(server, options);
  put(*outbox, 20, 29);
  CHECK(outbox->counts() == Outbox::Counts{0, 5, 5});
  server.set_up(true);
  CHECK(outbox->drain(10s));
  CHECK(server.received() == range(20, 24));
  CHECK(outbox->take_faults().size() <= 2);  // the server was down, and entries were dropped
}

TEST_CASE("a sender continues with the state of the previous process's sender") {
  toy::Folder folder;
  Server server;
  int remembered = -1;
  const auto make = [&](const Spool& spool, const std::atomic<bool>& cancelled) {
    remembered = spool.memory().value("sent", 0);
    return std::make_unique<ToServer>(server, spool, cancelled);
  };
  {
    auto options = options_in(folder);
    options.max_entries = 4;
    Outbox outbox(options, make);
    put(outbox, 20, 23);
    CHECK(outbox.drain(10s));
    server.set_up(false);
    put(outbox, 24, 25);
    CHECK(!outbox.drain(10s));
  }
  CHECK(remembered == 0);
  server.set_up(true);
  Outbox outbox(options_in(folder), make);
  CHECK(outbox.drain(10s));
  CHECK(remembered == 4);
  CHECK(server.received() == range(20, 25));
}

TEST_CASE("a queued file exists until it is sent, and is removed then") {
  toy::Folder folder, elsewhere;
  toy::write_text(elsewhere / "weights", "w1");
  Server server(false);
  const auto outbox = outbox_to(server, options_in(folder));
  outbox->put_file({{"n", 1}}, elsewhere / "weights");
  const auto files = outbox->spool().folder() / "files";
  std::filesystem::remove(elsewhere / "weights");
  CHECK(toy::names_in(files).size() == 1);
  server.set_up(true);
  CHECK(outbox->drain(10s));
  CHECK(server.received() == std::vector{1});
  CHECK(toy::names_in(files).empty());
  outbox->put_file({{"n", 2}}, elsewhere / "weights");
  CHECK(outbox->counts() == Outbox::Counts{1, 0, 1});
}

TEST_CASE("a file whose entry isn't accepted isn't kept") {
  toy::Folder folder, elsewhere;
  toy::write_text(elsewhere / "weights", "w1");
  Server server(false);
  auto options = options_in(folder);
  options.max_waiting_bytes = 20;  // one entry of 19 bytes
  const auto outbox = outbox_to(server, options);
  for (int n = 1; n <= 3; ++n) outbox->put_file({{"n", n}}, elsewhere / "weights");
  CHECK(outbox->counts() == Outbox::Counts{0, 1, 2});
  CHECK(toy::names_in(outbox->spool().folder() / "files").size() == 1);
}

TEST_CASE("files that are rotated away while the server is down are kept up to a limit") {
  toy::Folder folder, elsewhere;
  Server server(false);
  auto options = options_in(folder);
  options.max_kept_bytes = 250;
  const auto outbox = outbox_to(server, options);
  const auto put_checkpoint = [&](int n) {
    toy::write_text(elsewhere / "weights", std::string(100, 'x'));
    outbox->put_file({{"n", n}}, elsewhere / "weights");
    std::filesystem::remove(elsewhere / "weights");
  };
  for (int n = 1; n <= 5; ++n) put_checkpoint(n);
  CHECK(outbox->counts() == Outbox::Counts{0, 3, 2});
  bool is_reported = false;
  for (const auto& fault : outbox->take_faults())
    is_reported |= fault.find("may take 250 bytes") != fault.npos;
  CHECK(is_reported);
  server.set_up(true);
  CHECK(outbox->drain(10s));
  put_checkpoint(6);
  CHECK(outbox->drain(10s));
  CHECK(server.received() == std::vector{1, 2, 3, 6});
}

TEST_CASE("a sender is called regularly while abandoned entries can't be sent") {
  toy::Folder folder;
  Server down(false), up;
  std::filesystem::path stuck;
  {
    const auto outbox = outbox_to(down, options_in(folder));
    put(*outbox, 1, 1);
    stuck = outbox->spool().folder();
  }
  Outbox outbox(options_in(folder), [&](const Spool& spool, const std::atomic<bool>& cancelled) {
    return std::make_unique<ToServer>(spool.folder() == stuck ? down : up, spool, cancelled);
  });
  put(outbox, 2, 2);
  for (int i = 0; i < 500; ++i) {
    std::this_thread::sleep_for(10ms);
    const std::lock_guard lock(up.mutex);
    if (up.idle > 0) break;
  }
  const std::lock_guard lock(up.mutex);
  CHECK(up.idle > 0);
}

TEST_CASE("nobody waits while abandoned spools are cleared") {
  struct Slow : ToServer {
    Slow(Server& server, const Spool& spool, const std::atomic<bool>& cancelled, std::atomic<int>& stage)
        : ToServer(server, spool, cancelled), stage_(stage) {}
    ~Slow() override {
      int untouched = 0;
      if (!stage_.compare_exchange_strong(untouched, 1)) return;  // the run's own sender
      for (int i = 0; i < 500 && stage_ == 1; ++i) std::this_thread::sleep_for(10ms);
      if (stage_ == 1) stage_ = 3;
    }
    std::atomic<int>& stage_;
  };
  toy::Folder folder;
  Server server(false);
  {
    const auto outbox = outbox_to(server, options_in(folder));
    put(*outbox, 1, 1);
  }
  server.set_up(true);
  std::atomic<int> stage = 0;
  Outbox outbox(options_in(folder), [&](const Spool& spool, const std::atomic<bool>& cancelled) {
    return std::make_unique<Slow>(server, spool, cancelled, stage);
  });
  while (stage == 0) std::this_thread::sleep_for(1ms);
  outbox.put({{"n", 2}});
  CHECK(outbox.counts().dropped == 0);
  CHECK(stage.exchange(2) == 1);
  CHECK(outbox.drain(10s));
}

TEST_CASE("an idle outbox calls its sender regularly") {
  toy::Folder folder;
  Server server;
  const auto outbox = outbox_to(server, options_in(folder));
  put(*outbox, 1, 1);
  CHECK(outbox->drain(10s));
  for (int i = 0; i < 500; ++i) {
    std::this_thread::sleep_for(10ms);
    const std::lock_guard lock(server.mutex);
    if (server.idle > 0) break;
  }
  CHECK(server.idle > 0);
}

TEST_CASE("a child made by fork() neither waits nor sends, and leaves the spool to its parent") {
  toy::Folder folder;
  Server server;
  auto outbox = outbox_to(server, options_in(folder));
  put(*outbox, 20, 29);
  CHECK(outbox->drain(10s));
  CHECK(toy::end_of_child([]() -> int { std::exit(3); }) == "exit 3");
  CHECK(toy::end_of_child([&] {
          put(*outbox, 30, 39);
          outbox->put_file({{"n", 40}}, "/etc/hostname");
          if (outbox->drain(100s)) return 1;
          if (!(outbox->counts() == Outbox::Counts{})) return 2;
          if (outbox->take_faults().size() != 1 || !outbox->take_faults().empty()) return 3;
          outbox.reset();
          return 4;
        }) == "exit 4");
  put(*outbox, 50, 59);
  CHECK(outbox->drain(10s));
  auto expected = range(20, 29);
  for (int n = 50; n <= 59; ++n) expected.push_back(n);
  CHECK(server.received() == expected);
  CHECK(toy::names_in(std::string(folder)).size() == 1);
  outbox.reset();
  CHECK(toy::names_in(std::string(folder)).empty());
}

TEST_CASE("exit() finishes when it destroys an outbox whose server hangs") {
  toy::Folder folder;
  CHECK(toy::end_of_child([&]() -> int {
          auto& server = *new Server;
          server.hangs = true;
          held_to_the_end = outbox_to(server, options_in(folder));
          put(*held_to_the_end, 20, 29);
          while (!server.is_asked) std::this_thread::sleep_for(1ms);
          // The request lasts longer than exit() waits for it.
          std::exit(3);
        }) == "exit 3");
}

TEST_CASE("the end waits for a server that has named the run, though it has taken no entry yet") {
  for (const bool names_run : {false, true}) {
    Server server(/*is_up=*/false);
    server.names_run = names_run;
    const toy::Folder folder;
    const auto outbox = outbox_to(server, options_in(folder));
    put(*outbox, 1, 3);
    std::jthread recovery([&] {
      if (!names_run) return;
      wait_for_attempts(server, 3);
      server.set_up(true);
    });
    outbox->send_rest(30s);
    CHECK(outbox->counts() == (names_run ? Outbox::Counts{.sent = 3} : Outbox::Counts{.waiting = 3}));
  }
}

}  // namespace integrations_shared_outbox_test
