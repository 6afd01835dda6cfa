#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// HTTP for those who send from an outbox. Needs libcurl.
namespace etude::detail {

/// Who asks, and how it is made sure who answers.
struct HttpOptions {
  std::string user = {}, password = {};           ///< Basic authentication, if there is a user; else
  std::string bearer = {};                        ///< this token, if there is one.
  std::vector<std::string> secret_headers = {};   ///< "Name: value", of every request.
  bool verify = true;                             ///< The server's certificate.
  std::filesystem::path certificates = {};        ///< Those to trust, in PEM; the system's if empty.
  std::filesystem::path client_certificate = {};  ///< With its key, in PEM.
  std::chrono::seconds timeout{120};              ///< Of a request whose answer doesn't come.
};

struct HttpRequest {
  std::string method = "GET";
  std::string url;
  std::string body = {};
  std::string content_type = "application/json";
  std::filesystem::path file = {};  ///< Sent as the body, read as it goes.
  /// The file as a field of this name of a form, as browsers send one, instead.
  std::string form_field = {};
  /// Must not arrive twice: on a connection that was kept open libcurl sends again what got no answer.
  bool once = false;
};

struct HttpResponse {
  long status = 0;
  std::string body;
  std::optional<std::chrono::seconds> retry_after = std::nullopt;
  std::string location = {};  ///< Where a redirect leads, which is not followed.
};

/// One connection, kept open from request to request; for one thread.
class HttpClient {
 public:
  /// Gives up a request when `cancelled` becomes true.
  explicit HttpClient(HttpOptions options, const std::atomic<bool>* cancelled = nullptr);
  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;
  ~HttpClient();

  /// Whatever the server answers. Throws Unreachable where it doesn't.
  HttpResponse send(const HttpRequest& request);

  /// As `send`; throws Unreachable for answers that say to come again (408, 429, 5xx; and 401 and 403, which
  /// the right credentials change), and Refused for every other that isn't a success, with what `fault_in`
  /// finds in its body.
  HttpResponse expect(const HttpRequest& request) { return checked(request, send(request)); }

  /// `response`, which came to `request`, where it is a success; throws as `expect` does where it isn't.
  HttpResponse checked(const HttpRequest& request, HttpResponse response) const;

  void set_bearer(std::string token) { options_.bearer = std::move(token); }
  const HttpOptions& options() const { return options_; }

 private:
  std::vector<std::string> secrets() const;

  struct Connection;
  HttpOptions options_;
  const std::atomic<bool>* cancelled_;
  std::unique_ptr<Connection> connection_;
};

/// An address without the credentials in it, which go to `user` and `password`, and without a / at its end.
/// Throws ArgumentError that names `field` for what isn't an http or https address.
std::string without_credentials(const std::string& url, const std::string& field, std::string& user,
                                std::string& password);

/// `text` as a part of an address: everything but letters, digits and -._~ as %XX.
std::string url_escaped(std::string_view text);

/// What a server says about a fault, for a message: the member `message`, `msg`, `error_code` or `error` of a
/// JSON answer, or the beginning of another; printable, and short.
std::string fault_in(const std::string& body);

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/shared/impl/http.ipp"
#endif
