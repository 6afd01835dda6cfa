#include "etude/integrations/shared/http.hpp"

#include <curl/curl.h>
#include <fmt/format.h>

#include <boost/algorithm/string/replace.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

#include "etude/base/base64.hpp"
#include "etude/base/error.hpp"
#include "etude/integrations/shared/outbox.hpp"
#include "etude/integrations/shared/text.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail {

namespace http {

namespace {

template <auto free>
struct Free {
  template <class T>
  void operator()(T* held) const {
    free(held);
  }
};
using Headers = std::unique_ptr<curl_slist, Free<curl_slist_free_all>>;

void add(Headers& headers, const std::string& line) {
  // curl_slist_append returns the extended list, or returns null and leaves the list unchanged.
  if (auto* longer = curl_slist_append(headers.get(), line.c_str())) {
    static_cast<void>(headers.release());
    headers.reset(longer);
  }
}

std::size_t take_body(const char* part, std::size_t size, std::size_t count, void* body) {
  constexpr std::size_t at_most = std::size_t{16} << 20;
  auto& text = *static_cast<std::string*>(body);
  if (text.size() + size * count > at_most) return 0;
  text.append(part, size * count);
  return size * count;
}

std::size_t take_header(const char* line, std::size_t size, std::size_t count, void* response) {
  const std::string_view header(line, size * count);
  constexpr std::string_view name = "retry-after:";
  if (header.size() > name.size() && curl_strnequal(header.data(), name.data(), name.size())) {
    // The header may also hold a date; then the outbox's pauses apply.
    if (const auto seconds = read_number<std::int64_t>(header.substr(name.size())); seconds && *seconds >= 0)
      static_cast<HttpResponse*>(response)->retry_after =
          std::chrono::seconds(std::min<std::int64_t>(*seconds, 3600));
  }
  return size * count;
}

int look_up(void* cancelled, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return cancelled != nullptr && static_cast<const std::atomic<bool>*>(cancelled)->load() ? 1 : 0;
}

std::size_t read_file(char* to, std::size_t size, std::size_t count, void* file) {
  return std::fread(to, 1, size * count, static_cast<std::FILE*>(file));
}

/// Copies a text that libcurl has allocated, and frees it.
std::string taken(char* text) {
  const std::unique_ptr<char, Free<curl_free>> owned(text);
  return text == nullptr ? "" : text;
}

std::string part(CURLU* url, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  return curl_url_get(url, which, &text, flags) == CURLUE_OK ? taken(text) : "";
}

}  // namespace

}  // namespace http

HttpClient::HttpClient(HttpOptions options, const std::atomic<bool>* cancelled)
    : options_(std::move(options)), cancelled_(cancelled) {
  static const auto started = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (started == CURLE_OK) curl_.reset(curl_easy_init(), curl_easy_cleanup);
  if (!curl_) throw Error("libcurl can't be started");
}

HttpResponse HttpClient::send(const HttpRequest& request) {
  auto* curl = curl_.get();
  curl_easy_reset(curl);  // keeps the connection
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(curl, option, value); };

  http::Headers headers;
  for (const auto& header : options_.secret_headers) http::add(headers, header);
  http::add(headers, "Expect:");  // otherwise libcurl waits a second for servers that ignore the header

  HttpResponse response;
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_FRESH_CONNECT, request.once ? 1L : 0L);
  set(CURLOPT_USERAGENT, "etude");
  set(CURLOPT_CONNECTTIMEOUT, 10L);
  // Uploads have no deadline; they fail only when they stall.
  if (request.file.empty()) {
    set(CURLOPT_TIMEOUT, static_cast<long>(options_.timeout.count()));
  } else {
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.timeout.count()));
  }
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &http::look_up);
  set(CURLOPT_XFERINFODATA, const_cast<std::atomic<bool>*>(cancelled_));
  set(CURLOPT_WRITEFUNCTION, &http::take_body);
  set(CURLOPT_WRITEDATA, &response.body);
  set(CURLOPT_HEADERFUNCTION, &http::take_header);
  set(CURLOPT_HEADERDATA, &response);
  if (!options_.user.empty()) {
    set(CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    set(CURLOPT_USERNAME, options_.user.c_str());
    set(CURLOPT_PASSWORD, options_.password.c_str());
  } else if (!options_.bearer.empty()) {
    set(CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    set(CURLOPT_XOAUTH2_BEARER, options_.bearer.c_str());
  }
  const auto certificates = options_.certificates.string(),
             client_certificate = options_.client_certificate.string();
  if (!options_.verify) {
    set(CURLOPT_SSL_VERIFYPEER, 0L);
    set(CURLOPT_SSL_VERIFYHOST, 0L);
  }
  if (!certificates.empty()) set(CURLOPT_CAINFO, certificates.c_str());
  if (!client_certificate.empty()) set(CURLOPT_SSLCERT, client_certificate.c_str());

  std::unique_ptr<std::FILE, http::Free<std::fclose>> file;
  std::unique_ptr<curl_mime, http::Free<curl_mime_free>> form;
  const auto path = request.file.string();
  if (!request.form_field.empty()) {
    form.reset(curl_mime_init(curl));
    auto* part = curl_mime_addpart(form.get());
    curl_mime_name(part, request.form_field.c_str());
    if (curl_mime_filedata(part, path.c_str()) != CURLE_OK) throw Refused(path + " can't be read");
    set(CURLOPT_MIMEPOST, form.get());
  } else if (!path.empty()) {
    file.reset(std::fopen(path.c_str(), "rbe"));
    std::error_code error;
    const auto size = std::filesystem::file_size(request.file, error);
    if (!file || error) throw Refused(path + " can't be read");
    http::add(headers, "Content-Type: application/octet-stream");
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_READFUNCTION, &http::read_file);
    set(CURLOPT_READDATA, file.get());
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(size));
  } else if (request.method != "GET") {
    http::add(headers, "Content-Type: " + request.content_type);
    set(CURLOPT_POSTFIELDS, request.body.c_str());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  }
  set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  set(CURLOPT_HTTPHEADER, headers.get());

  if (const auto fault = curl_easy_perform(curl); fault != CURLE_OK) {
    Unreachable unreachable(fmt::format("{} {}: {}", request.method, request.url, curl_easy_strerror(fault)),
                            std::nullopt, "connection");
    unreachable.has_timed_out = fault == CURLE_OPERATION_TIMEDOUT;
    throw unreachable;
  }
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &response.status);
  const char* location = nullptr;
  curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &location);
  if (location != nullptr) response.location = location;
  return response;
}

std::vector<std::string> HttpClient::secrets() const {
  std::vector<std::string> found;
  const auto add = [&](const std::string& secret) {
    if (!secret.empty() && secret.find_first_not_of('*') != secret.npos) found.push_back(secret);
  };
  add(options_.password);
  if (!options_.user.empty()) add(detail::base64(options_.user + ':' + options_.password));
  add(options_.bearer);
  for (const auto& header : options_.secret_headers)
    if (const auto colon = header.find(": "); colon != header.npos) add(header.substr(colon + 2));
  return found;
}

HttpResponse HttpClient::checked(const HttpRequest& request, HttpResponse response) const {
  if (response.status >= 200 && response.status < 300) return response;
  // Servers may repeat the request in the response.
  for (const auto& secret : secrets()) boost::replace_all(response.body, secret, "***");
  const auto what =
      fmt::format("{} {}: {} {}", request.method, request.url, response.status, fault_in(response.body));
  switch (response.status) {
    case 401:
    case 403:
    case 408:
    case 429:
      throw Unreachable(what, response.retry_after, std::to_string(response.status));
    default:
      if (response.status >= 500) throw Unreachable(what, response.retry_after, "5xx");
      throw Refused(what);
  }
}

std::string without_credentials(const std::string& url, const std::string& field, std::string& user,
                                std::string& password) {
  const std::unique_ptr<CURLU, http::Free<curl_url_cleanup>> parsed(curl_url());
  const bool is_web = url.starts_with("http://") || url.starts_with("https://");
  // The value isn't shown: it may contain credentials.
  if (!is_web || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK)
    throw ArgumentError(field + " must be an address that begins with http:// or https://");
  if (const auto name = http::part(parsed.get(), CURLUPART_USER, CURLU_URLDECODE); !name.empty()) {
    user = name;
    password = http::part(parsed.get(), CURLUPART_PASSWORD, CURLU_URLDECODE);
  }
  for (const auto part : {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY, CURLUPART_FRAGMENT})
    curl_url_set(parsed.get(), part, nullptr, 0);
  auto plain = http::part(parsed.get(), CURLUPART_URL);
  while (plain.ends_with('/')) plain.pop_back();
  return plain;
}

std::string url_escaped(std::string_view text) {
  return http::taken(curl_easy_escape(nullptr, text.data(), static_cast<int>(text.size())));
}

std::string url_unescaped(std::string_view text) {
  return http::taken(curl_easy_unescape(nullptr, text.data(), static_cast<int>(text.size()), nullptr));
}

std::string fault_in(const std::string& body) {
  const auto json = nlohmann::json::parse(body, nullptr, false);
  for (const char* name : {"message", "msg", "error_code", "error"})
    if (const auto text = text_in(json, name); !text.empty()) return printable(text);
  return printable(body);
}

}  // namespace etude::inline v0::detail
