#include "etude/integrations/mlflow/client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>

#include "etude/integrations/shared/outbox.hpp"
#include "etude/integrations/shared/text.hpp"
#include "etude/io/file_system.hpp"

namespace etude::inline v0::detail {
namespace mlflow {

namespace {

constexpr std::string_view api = "/api/2.0/mlflow/", artifacts = "/api/2.0/mlflow-artifacts/artifacts";

/// The server doesn't know this object.
struct NotThere : Refused {
  using Refused::Refused;
};

std::map<std::string, std::string> key_values(const nlohmann::json& json, const char* name) {
  std::map<std::string, std::string> values;
  if (const auto list = json.find(name); list != json.end() && list->is_array())
    for (const auto& entry : *list) values[text_in(entry, "key")] = text_in(entry, "value");
  return values;
}

MLflowRunInfo run_info(const nlohmann::json& answer) {
  const auto run = answer.find("run");
  const auto& json = run != answer.end() ? *run : answer;
  const auto attributes = json.value("info", nlohmann::json::object());
  const auto data = json.value("data", nlohmann::json::object());
  MLflowRunInfo info{.id = text_in(attributes, "run_id"),
                     .experiment_id = text_in(attributes, "experiment_id"),
                     .artifact_uri = text_in(attributes, "artifact_uri"),
                     .is_deleted = text_in(attributes, "lifecycle_stage") == "deleted",
                     .params = key_values(data, "params"),
                     .tags = key_values(data, "tags")};
  if (info.id.empty()) throw Unreachable("the server's answer has no run");
  return info;
}

MLflowExperiment experiment_info(const nlohmann::json& answer) {
  const auto experiment = answer.value("experiment", nlohmann::json::object());
  MLflowExperiment info{.id = text_in(experiment, "experiment_id"),
                        .name = text_in(experiment, "name"),
                        .is_deleted = text_in(experiment, "lifecycle_stage") == "deleted"};
  if (info.id.empty()) throw Unreachable("the server's answer has no experiment");
  return info;
}

std::string escaped_path(std::string_view path) {
  std::string escaped;
  while (!path.empty()) {
    const auto part = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), part.size() + 1));
    if (!part.empty()) escaped += '/' + url_escaped(part);
  }
  return escaped;
}

/// The scheme and the host of an address.
std::string_view origin(std::string_view url) {
  const auto host = url.find("://");
  return host == url.npos ? url : url.substr(0, url.find('/', host + 3));
}

/// The query of an address, including ?, without the fragment.
std::string query(std::string_view url) {
  url = url.substr(0, url.find('#'));
  return std::string(url.substr(std::min(url.find('?'), url.size())));
}

/// The result of `find`; nullopt if the server doesn't know the object.
template <class Find>
auto found(Find find) -> std::optional<decltype(find())> {
  try {
    return find();
  } catch (const NotThere&) {
    return std::nullopt;
  }
}

void write_artifact(const std::filesystem::path& to, const std::filesystem::path& file) {
  std::error_code error;
  std::filesystem::create_directories(to.parent_path(), error);
  const auto partial = to.parent_path() / ('.' + to.filename().string() + '.' + random_name());
  if (!error) std::filesystem::copy_file(file, partial, error);
  if (!error) std::filesystem::rename(partial, to, error);
  if (!error) return;
  const auto why = error.message();
  std::filesystem::remove(partial, error);
  throw Refused(fmt::format("{} can't be written: {}", to.string(), why));
}

}  // namespace

}  // namespace mlflow

MLflowClient::MLflowClient(std::string address, HttpOptions options, RenewToken renew_token,
                           const std::atomic<bool>* cancelled)
    : address_(std::move(address)),
      http_(std::move(options), cancelled),
      renew_token_(std::move(renew_token)),
      cancelled_(cancelled) {}

void MLflowClient::keep_fresh() {
  if (!renew_token_) return;
  if (auto token = renew_token_(http_, false)) http_.set_bearer(std::move(*token));
}

HttpResponse MLflowClient::ask(const HttpRequest& request) {
  keep_fresh();
  auto response = http_.send(request);
  if (response.status == 401 && renew_token_) {
    if (auto token = renew_token_(http_, true)) {
      http_.set_bearer(std::move(*token));
      response = http_.send(request);
    }
  }
  return response;
}

HttpResponse MLflowClient::expect(const HttpRequest& request) {
  auto response = ask(request);
  const auto status = response.status;
  std::string user, password;
  const auto location = response.location.empty()
                            ? std::string()
                            : without_credentials(response.location, "the redirect", user, password);
  const auto code = text_in(nlohmann::json::parse(response.body, nullptr, false), "error_code");
  try {
    return http_.checked(request, std::move(response));
  } catch (const Refused& refused) {
    if (code == "RESOURCE_DOES_NOT_EXIST") throw mlflow::NotThere(refused.what());
    constexpr long is_too_long = 413;
    if (!code.empty() || status == is_too_long) throw;
    throw Unreachable(fmt::format(
        "{}; this isn't an MLflow server's answer{}", refused.what(),
        location.empty() ? "" : ", whose own address must be given: it redirects to " + location));
  }
}

nlohmann::json MLflowClient::call(const HttpRequest& request) {
  const auto response = expect(request);
  auto answer = nlohmann::json::parse(response.body, nullptr, false);
  if (!answer.is_object())
    throw Unreachable(fmt::format("{} {}: {}, which isn't an MLflow server's answer", request.method,
                                  request.url, response.status));
  return answer;
}

nlohmann::json MLflowClient::get(const std::string& method, const std::string& query) {
  return call({.method = "GET", .url = fmt::format("{}{}{}?{}", address_, mlflow::api, method, query)});
}

nlohmann::json MLflowClient::post(const std::string& method, const nlohmann::ordered_json& body, bool once) {
  return call({.method = "POST",
               .url = fmt::format("{}{}{}", address_, mlflow::api, method),
               .body = json_line(body),
               .once = once});
}

std::optional<MLflowExperiment> MLflowClient::experiment(const std::string& id) {
  return mlflow::found(
      [&] { return mlflow::experiment_info(get("experiments/get", "experiment_id=" + url_escaped(id))); });
}

MLflowExperiment MLflowClient::experiment_named(const std::string& name) {
  const auto find = [&] {
    return mlflow::experiment_info(get("experiments/get-by-name", "experiment_name=" + url_escaped(name)));
  };
  if (auto known = mlflow::found(find)) return *std::move(known);
  try {
    MLflowExperiment made{.id = text_in(post("experiments/create", {{"name", name}}), "experiment_id"),
                          .name = name};
    if (made.id.empty()) throw Unreachable("the server's answer has no experiment");
    return made;
  } catch (const Refused&) {
    // Another process may have created it meanwhile.
    if (auto known = mlflow::found(find)) return *std::move(known);
    throw;
  }
}

std::optional<MLflowRunInfo> MLflowClient::run(const std::string& id) {
  return mlflow::found([&] { return mlflow::run_info(get("runs/get", "run_id=" + url_escaped(id))); });
}

std::optional<MLflowRunInfo> MLflowClient::run_with_tag(const std::string& experiment_id,
                                                        const std::string& tag, const std::string& value) {
  const auto found = post("runs/search", {{"experiment_ids", {experiment_id}},
                                          {"filter", fmt::format("tags.`{}` = '{}'", tag, value)},
                                          {"max_results", 1}});
  const auto runs = found.find("runs");
  if (runs == found.end() || !runs->is_array() || runs->empty()) return std::nullopt;
  return mlflow::run_info(runs->front());
}

MLflowRunInfo MLflowClient::create_run(const nlohmann::ordered_json& body) {
  return mlflow::run_info(post("runs/create", body, true));
}

void MLflowClient::set_status(const std::string& run_id, const std::string& status,
                              std::optional<std::int64_t> ended) {
  nlohmann::ordered_json body{{"run_id", run_id}, {"status", status}};
  if (ended) body["end_time"] = *ended;
  post("runs/update", body);
}

void MLflowClient::log_batch(const std::string& run_id, const std::string& kind,
                             nlohmann::ordered_json values) {
  post("runs/log-batch", {{"run_id", run_id}, {kind, std::move(values)}});
}

void MLflowClient::put_artifact(const std::string& artifact_uri, const std::string& path,
                                const std::filesystem::path& file) {
  const auto after = [&](std::string_view scheme) {
    return artifact_uri.starts_with(scheme) ? std::optional(artifact_uri.substr(scheme.size()))
                                            : std::nullopt;
  };
  std::string base;
  if (const auto elsewhere = after("mlflow-artifacts://")) {
    const auto slash = std::min(elsewhere->find('/'), elsewhere->size());
    const auto own = mlflow::origin(address_);
    const auto server =
        slash == 0 ? address_
                   : fmt::format("{}{}", own.substr(0, own.find("://") + 3), elsewhere->substr(0, slash));
    base = server + std::string(mlflow::artifacts) + mlflow::escaped_path(elsewhere->substr(slash));
  } else if (const auto here = after("mlflow-artifacts:")) {
    base = address_ + std::string(mlflow::artifacts) + mlflow::escaped_path(*here);
  } else if (after("http://") || after("https://")) {
    return put_to_store(artifact_uri, path, file);
  } else if (artifact_uri.starts_with('/')) {
    return mlflow::write_artifact(std::filesystem::path(artifact_uri) / path, file);
  } else if (const auto folder = after("file://")) {
    return mlflow::write_artifact(std::filesystem::path(url_unescaped(*folder)) / path, file);
  } else {
    throw Refused(fmt::format(
        "the run has its artifacts at '{}': only mlflow-artifacts:, http and https addresses and folders of "
        "this machine can be written",
        artifact_uri.substr(0, artifact_uri.find(':'))));
  }

  if (mlflow::origin(base) != mlflow::origin(address_)) return put_to_store(base, path, file);
  expect({.method = "PUT", .url = base + mlflow::escaped_path(path), .file = file});
}

void MLflowClient::put_to_store(const std::string& folder, const std::string& path,
                                const std::filesystem::path& file) {
  auto options = http_.options();
  // Credentials aren't sent to a host that only the server has named.
  if (mlflow::origin(folder) != mlflow::origin(address_)) {
    options.user = options.password = options.bearer = "";
    options.secret_headers.clear();
  }
  const auto plain = without_credentials(folder, "the artifacts' address", options.user, options.password);
  const auto query = mlflow::query(folder);
  const HttpRequest shown{.method = "PUT", .url = plain + mlflow::escaped_path(path), .file = file};
  auto request = shown;
  request.url += query;
  HttpClient store(std::move(options), cancelled_);
  HttpResponse response;
  try {
    response = store.send(request);
  } catch (const Unreachable& fault) {
    std::string what = fault.what();
    if (const auto at = what.find(request.url); at != what.npos)
      what.replace(at, request.url.size(), shown.url);
    Unreachable plainly(what);
    plainly.has_timed_out = fault.has_timed_out;
    throw plainly;
  }
  if (!query.empty()) response.body.clear();  // it may repeat the query
  store.checked(shown, std::move(response));
}

}  // namespace etude::inline v0::detail
