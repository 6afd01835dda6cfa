#include "etude/integrations/mlflow/variables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "etude/base/error.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/ini.hpp"
#include "etude/integrations/shared/tracked_run.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail {
namespace mlflow {

namespace {

constexpr const char* uri = "MLFLOW_TRACKING_URI";

/// The section [mlflow] of ~/.mlflow/credentials.
std::map<std::string, std::string> credentials_file() {
  return read_ini(std::filesystem::path(environment("HOME").value_or("/")) / ".mlflow" /
                  "credentials")["mlflow"];
}

std::filesystem::path readable_file(const char* variable) {
  const auto path = environment(variable);
  if (!path) return {};
  if (std::error_code error; !std::filesystem::is_regular_file(*path, error) || !std::ifstream(*path))
    throw ArgumentError(fmt::format("{} is '{}': must be a file that can be read", variable, *path));
  return *path;
}

}  // namespace

}  // namespace mlflow

std::optional<std::int64_t> mlflow_count(const char* variable) {
  const auto text = environment(variable);
  if (!text) return std::nullopt;
  std::int64_t count = 0;
  if (!read_text(*text, count) || count < 0)
    throw ArgumentError(fmt::format("{} is '{}': must be a whole number, at least 0", variable, *text));
  return count;
}

HttpOptions mlflow_http_options() {
  HttpOptions http;
  auto file = mlflow::credentials_file();
  http.user = environment("MLFLOW_TRACKING_USERNAME").value_or(file["mlflow_tracking_username"]);
  http.password = environment("MLFLOW_TRACKING_PASSWORD").value_or(file["mlflow_tracking_password"]);
  if (http.user.empty() || http.password.empty()) http.user = http.password = "";
  http.bearer = environment("MLFLOW_TRACKING_TOKEN").value_or("");
  http.verify = !environment_says("MLFLOW_TRACKING_INSECURE_TLS");
  http.certificates = mlflow::readable_file("MLFLOW_TRACKING_SERVER_CERT_PATH");
  http.client_certificate = mlflow::readable_file("MLFLOW_TRACKING_CLIENT_CERT_PATH");
  if (!http.verify && !http.certificates.empty())
    throw ArgumentError(
        "MLFLOW_TRACKING_INSECURE_TLS is set, and so is MLFLOW_TRACKING_SERVER_CERT_PATH: must be one of "
        "them");
  if (const auto workspace = environment("MLFLOW_WORKSPACE")) {
    if (!std::ranges::all_of(*workspace, [](char c) { return c > ' ' && c < 127; }))
      throw ArgumentError(
          "MLFLOW_WORKSPACE has a space or another character that a workspace's name can't have");
    http.secret_headers.push_back("X-MLFLOW-WORKSPACE: " + *workspace);
  }
  if (const auto timeout = mlflow_count("MLFLOW_HTTP_REQUEST_TIMEOUT")) {
    if (*timeout < 1 || *timeout > 86400)
      throw ArgumentError(
          fmt::format("MLFLOW_HTTP_REQUEST_TIMEOUT is {}: must be from 1 to 86400 seconds", *timeout));
    http.timeout = std::chrono::seconds(*timeout);
  }
  return http;
}

std::map<std::string, std::string> mlflow_tags(const std::map<std::string, std::string>& given) {
  auto tags = given;
  for (const char* variable : {"MLFLOW_TAGS", "MLFLOW_RUN_CONTEXT"}) {
    const auto text = environment(variable);
    if (!text) continue;
    const auto json = nlohmann::ordered_json::parse(*text, nullptr, false);
    if (!json.is_object())
      throw ArgumentError(
          fmt::format("{} is '{}': must be a JSON object, such as {{\"team\": \"a\"}}", variable, *text));
    for (const auto& [name, value] : json.items()) tags.emplace(name, parameter_text(value));
  }
  return tags;
}

std::int64_t mlflow_max_params(std::optional<std::int64_t> given) {
  if (given && *given < -1)
    throw ArgumentError(fmt::format("max_log_params is {}: must be at least 0, or -1 for all", *given));
  return given ? *given : mlflow_count("MLFLOW_MAX_LOG_PARAMS").value_or(-1);
}

std::string mlflow_address(const std::string& given, HttpOptions& http, const std::string& instead_of) {
  const auto* field = given.empty() ? mlflow::uri : "tracking_uri";
  auto address = given.empty() ? environment(mlflow::uri).value_or("") : given;
  const auto allowed = (instead_of.empty() ? "" : instead_of + "://, ") + std::string("http:// or https://");
  if (address.empty())
    throw ArgumentError(fmt::format(
        "neither tracking_uri nor {} is set: must be the address of an MLflow server that begins with {}",
        mlflow::uri, allowed));
  if (!instead_of.empty() && address.starts_with(instead_of + "://"))
    address = "https" + address.substr(instead_of.size());
  if (address.starts_with("azureml://"))
    throw ArgumentError(
        fmt::format("{} is 'azureml...', a workspace of Azure ML: AzureMLCallback, which is azure_ml in "
                    "report_to, sends to "
                    "it, with its log_params the parameters too",
                    field));
  // The message shows only the beginning: the address may contain credentials.
  if (!address.starts_with("http://") && !address.starts_with("https://"))
    throw ArgumentError(
        fmt::format("{} is '{}...': must be the address of an MLflow server that begins with {}; "
                    "files and databases can't be written to without one",
                    field, address.substr(0, std::min(address.find(':'), std::size_t{20})), allowed));
  std::string user, password;
  auto plain = without_credentials(address, field, user, password);
  for (const char* variable : {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"})
    if (plain.starts_with("https://") && http.verify && http.certificates.empty())
      http.certificates = mlflow::readable_file(variable);
  if (user.empty()) return plain;
  // Credentials in the option would end up in the callback's state and in every checkpoint.
  if (!given.empty())
    throw ArgumentError(
        "tracking_uri has credentials in it: must have none; set MLFLOW_TRACKING_USERNAME and "
        "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_URI");
  if (http.user.empty()) {
    http.user = user;
    http.password = password;
  }
  return plain;
}

bool mlflow_uri_begins(std::initializer_list<const char*> schemes) {
  const auto address = environment(mlflow::uri).value_or("");
  return std::ranges::any_of(schemes, [&](const char* scheme) { return address.starts_with(scheme); });
}

}  // namespace etude::inline v0::detail
