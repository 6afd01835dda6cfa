#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// HTTP for the senders of an outbox. Needs libcurl.
namespace etude::inline v0::detail {

/// Authentication of the client and verification of the server.
struct HttpOptions {
  std::string user = {}, password = {};           ///< For basic authentication, if `user` is set.
  std::string bearer = {};                        ///< Otherwise this token is sent, if it is set.
  std::vector<std::string> secret_headers = {};   ///< "Name: value", sent with every request.
  bool verify = true;                             ///< Verify the server's certificate.
  std::filesystem::path certificates = {};        ///< Trusted certificates, in PEM; the system's if empty.
  std::filesystem::path client_certificate = {};  ///< Including its key, in PEM.
  std::chrono::seconds timeout{120};              ///< The time limit for a response.
};

struct HttpRequest {
  std::string method = "GET";
  std::string url;
  std::string body = {};
  std::string content_type = "application/json";
  std::filesystem::path file = {};  ///< Sent as the body, read while sending.
  /// Sends the file as this field of a form instead, as browsers do.
  std::string form_field = {};
  /// True if the request must not arrive twice: on a kept-alive connection libcurl repeats unanswered
  /// requests.
  bool once = false;
};

struct HttpResponse {
  long status = 0;
  std::string body;
  std::optional<std::chrono::seconds> retry_after = std::nullopt;
  std::string location = {};  ///< The target of a redirect, which is not followed.
};

/// One connection, kept alive between requests; for one thread.
class HttpClient {
 public:
  /// Aborts a request when `cancelled` becomes true.
  explicit HttpClient(HttpOptions options, const std::atomic<bool>* cancelled = nullptr);
  HttpClient(HttpClient&&) noexcept = default;
  HttpClient& operator=(HttpClient&&) noexcept = default;

  /// Returns the response, whatever its status. Throws Unreachable if there is none.
  HttpResponse send(const HttpRequest& request);

  /// Like `send`, but throws Unreachable for statuses that ask to retry (408, 429, 5xx, and 401 and 403,
  /// which better credentials fix), and Refused for any other failure, with the error text that `fault_in`
  /// finds.
  HttpResponse expect(const HttpRequest& request) { return checked(request, send(request)); }

  /// Returns the `response` to `request` if it is a success; otherwise throws as `expect` does.
  HttpResponse checked(const HttpRequest& request, HttpResponse response) const;

  void set_bearer(std::string token) { options_.bearer = std::move(token); }
  const HttpOptions& options() const { return options_; }

 private:
  std::vector<std::string> secrets() const;

  HttpOptions options_;
  const std::atomic<bool>* cancelled_;
  std::shared_ptr<void> curl_;
};

/// An address without its credentials, which go to `user` and `password`, and without a trailing /. Throws an
/// ArgumentError that names `field` unless it is an http or https address.
std::string without_credentials(const std::string& url, const std::string& field, std::string& user,
                                std::string& password);

/// `text` escaped for an address: everything but letters, digits and -._~ becomes %XX.
std::string url_escaped(std::string_view text);
/// `text` with each %XX replaced by its byte.
std::string url_unescaped(std::string_view text);

/// A server's error text for a message, printable and short: the member `message`, `msg`, `error_code` or
/// `error` of a JSON response, or the beginning of any other response.
std::string fault_in(const std::string& body);

}  // namespace etude::inline v0::detail
