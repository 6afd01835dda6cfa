#include "etude/integrations/shared/http.hpp"

#include <doctest/doctest.h>

#include <thread>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/httplib.hpp"
#include "etude/base/error.hpp"
#include "etude/integrations/shared/outbox.hpp"

namespace integrations_shared_http_test {

using etude::ArgumentError;
using etude::detail::HttpClient;
using etude::detail::HttpOptions;
using etude::detail::Refused;
using etude::detail::Unreachable;
using etude::detail::without_credentials;
using namespace std::chrono_literals;

/// Listens on a free port. /echo returns the request's body; /STATUS returns that status, with the
/// credentials that it received.
class Server {
 public:
  Server() {
    const auto answer = [this](const httplib::Request& request, httplib::Response& response) {
      last = request;
      response.set_content(request.body, "text/plain");
    };
    server_.Get("/echo", answer);
    server_.Post("/echo", answer);
    server_.Put("/echo", answer);
    server_.Get(R"(/(\d\d\d))", [](const httplib::Request& request, httplib::Response& response) {
      response.status = std::stoi(request.matches[1]);
      response.set_header("Retry-After", "7");
      response.set_content(R"({"message": "not with )" + request.get_header_value("Authorization") +
                               request.get_header_value("Comet-Sdk-Api") + R"("})",
                           "application/json");
    });
    server_.Get("/slow", [this](const httplib::Request&, httplib::Response&) {
      while (!stop_) std::this_thread::sleep_for(5ms);
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::sleep_for(1ms);
  }
  ~Server() {
    stop_ = true;
    server_.stop();
    thread_.join();
  }
  std::string operator/(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + "/" + path;
  }

  httplib::Request last;

 private:
  httplib::Server server_;
  std::thread thread_;
  std::atomic<bool> stop_ = false;
  int port_ = 0;
};

TEST_CASE("bodies, files and forms arrive unchanged") {
  Server server;
  toy::Folder folder;
  const std::string bytes("a\0b\n", 4);
  HttpClient client({});
  CHECK(client.send({.method = "POST", .url = server / "echo", .body = bytes}).body == bytes);
  CHECK(server.last.get_header_value("Content-Type") == "application/json");

  toy::write_text(folder / "file", std::string(300'000, 'x'));
  CHECK(client.send({.method = "PUT", .url = server / "echo", .file = folder / "file"}).body ==
        std::string(300'000, 'x'));
  CHECK(client.send({.url = server / "echo"}).status == 200);
  CHECK(server.last.body.empty());

  client.send({.method = "POST", .url = server / "echo", .file = folder / "file", .form_field = "file"});
  CHECK(server.last.get_file_value("file").content.size() == 300'000);
}

TEST_CASE("credentials are only sent where configured") {
  Server server;
  HttpClient basic({.user = "ada", .password = "l:ove"}), bearer({.bearer = "t0ken"}),
      header({.secret_headers = {"Comet-Sdk-Api: k3y"}});
  basic.send({.url = server / "echo"});
  CHECK(server.last.get_header_value("Authorization") == "Basic YWRhOmw6b3Zl");
  bearer.send({.url = server / "echo"});
  CHECK(server.last.get_header_value("Authorization") == "Bearer t0ken");
  bearer.set_bearer("t1ken");
  bearer.send({.url = server / "echo"});
  CHECK(server.last.get_header_value("Authorization") == "Bearer t1ken");
  header.send({.url = server / "echo"});
  CHECK(server.last.get_header_value("Comet-Sdk-Api") == "k3y");
}

TEST_CASE("transient errors are retried, and permanent ones aren't") {
  Server server;
  HttpClient client({});
  for (const char* status : {"401", "403", "408", "429", "500", "502", "503", "504"}) {
    try {
      client.expect({.url = server / status});
      FAIL("no fault");
    } catch (const Unreachable& fault) {
      CHECK(fault.retry_after == 7s);
      CHECK(fault.kind == (*status == '5' ? "5xx" : status));
      CHECK(fault.what() == "GET " + (server / status) + ": " + status + " not with ");
    }
  }
  for (const char* status : {"302", "400", "404", "409", "413"})
    CHECK_THROWS_AS(client.expect({.url = server / status}), Refused);
  CHECK(client.expect({.url = server / "204"}).status == 204);
}

TEST_CASE("credentials that a server echoes don't get into a message") {
  Server server;
  HttpClient bearer({.bearer = "t0ken"}), header({.secret_headers = {"Comet-Sdk-Api: k3y"}});
  CHECK(toy::contains(toy::fault_of<Refused>([&] { bearer.expect({.url = server / "400"}); }),
                      "not with Bearer ***"));
  for (const std::string password : {"l:ove", "l:ov", "l:o"}) {
    HttpClient basic({.user = "ada", .password = password});
    CHECK(toy::contains(toy::fault_of<Refused>([&] { basic.expect({.url = server / "400"}); }),
                        "not with Basic ***"));
  }
  CHECK(
      toy::contains(toy::fault_of<Refused>([&] { header.expect({.url = server / "400"}); }), "not with ***"));
}

TEST_CASE("a server is unreachable if it doesn't answer, answers too late, or the request is cancelled") {
  HttpClient client({.timeout = 1s});
  CHECK(toy::contains(toy::fault_of<Unreachable>([&] { client.send({.url = "http://127.0.0.1:1/x"}); }),
                      "GET http://127.0.0.1:1/x: Couldn't connect"));
  Server server;
  CHECK(toy::contains(toy::fault_of<Unreachable>([&] { client.send({.url = server / "slow"}); }), "Timeout"));
  std::atomic<bool> cancelled = false;
  HttpClient patient({}, &cancelled);
  std::thread canceller([&] {
    std::this_thread::sleep_for(50ms);
    cancelled = true;
  });
  CHECK_THROWS_AS(patient.send({.url = server / "slow"}), Unreachable);
  canceller.join();
}

TEST_CASE("credentials are removed from an address, and an invalid address isn't shown") {
  std::string user, password;
  CHECK(without_credentials("https://ada:l%3Aove@host:5000/prefix//?x=1#y", "MLFLOW_TRACKING_URI", user,
                            password) == "https://host:5000/prefix");
  CHECK(user == "ada");
  CHECK(password == "l:ove");
  user.clear();
  CHECK(without_credentials("http://host", "uri", user, password) == "http://host");
  CHECK(user.empty());
  for (const char* url : {"ftp://ada:secret@host", "host:5000", "", "http://"})
    CHECK(toy::fault_of<ArgumentError>([&] { without_credentials(url, "uri", user, password); }) ==
          "uri must be an address that begins with http:// or https://");
}

TEST_CASE("the parts of an address are escaped") {
  CHECK(etude::detail::url_escaped("a b/c?d&é-_.~") == "a%20b%2Fc%3Fd%26%C3%A9-_.~");
}

}  // namespace integrations_shared_http_test
