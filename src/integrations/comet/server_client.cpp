#include "etude/integrations/comet/server_client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/integrations/comet/messages.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/text.hpp"
#include "etude/io/entry_name.hpp"

namespace etude::inline v0::detail::comet {

namespace {

/// The version of the Python client whose protocol this class follows; servers refuse old versions.
constexpr std::string_view spoken_version = "3.58.8";

/// Values of `sdk_error_code` in the server's responses.
enum ServerFault : std::int64_t { unknown_key = 90212, exists = 90999 };

/// A refusal with the server's error code.
struct Denied : Refused {
  Denied(const std::string& what, std::int64_t number) : Refused(what), code(number) {}
  std::int64_t code;
};

std::optional<std::int64_t> number_in(const nlohmann::json& json, const char* name) {
  if (!json.is_object() || !json.contains(name) || !json[name].is_number_integer()) return std::nullopt;
  return json[name].get<std::int64_t>();
}

HttpOptions http_options(const Settings& settings) {
  return {.user = settings.user,
          .password = settings.password,
          .secret_headers = {"Authorization: " + settings.api_key},
          .verify = settings.verify,
          .certificates = settings.certificates,
          .timeout = std::chrono::seconds(60)};
}

}  // namespace

ServerClient::ServerClient(const Settings& settings, const Spool& spool, const std::atomic<bool>& cancelled)
    : api_key_(settings.api_key),
      client_url_(settings.client_url),
      rest_url_(settings.rest_url),
      spool_(spool),
      http_(http_options(settings), &cancelled) {
  const nlohmann::json memory = spool.memory();
  key_ = text_in(memory, "key");
  run_id_ = text_in(memory, "run_id");
  project_id_ = text_in(memory, "project_id");
}

nlohmann::ordered_json ServerClient::memory() const {
  return {{"key", key_}, {"run_id", run_id_}, {"project_id", project_id_}};
}

std::string ServerClient::client(std::string_view path) const {
  return fmt::format("{}/{}", client_url_, path);
}
std::string ServerClient::rest(std::string_view path) const {
  return fmt::format("{}/api/rest/v2/write/experiment/{}", rest_url_, path);
}

nlohmann::json ServerClient::post(const std::string& url, const Json& body) {
  return post({.method = "POST",
               .url = url,
               .body = json_line(body),
               .content_type = "application/json;charset=utf-8"});
}

nlohmann::json ServerClient::post(const HttpRequest& request) {
  auto response = http_.send(request);
  const auto answer = nlohmann::json::parse(response.body, nullptr, false);
  const auto number = number_in(answer, "sdk_error_code").value_or(0);
  try {
    http_.checked(request, std::move(response));
  } catch (const Unreachable& fault) {
    if (number == exists) throw Denied(fault.what(), number);
    throw;
  } catch (const Refused& fault) {
    // Another key might succeed.
    if (number == unknown_key) throw Unreachable(fault.what());
    throw Denied(fault.what(), number);
  }
  return answer;
}

std::size_t ServerClient::send(std::span<const nlohmann::ordered_json> entries) {
  beat();
  try {
    const auto& type = entries.front().at("type").get_ref<const std::string&>();
    if (type == "metric_msg" || type == "parameter_msg") return send_batch(entries, type);
    send_one(entries.front());
  } catch (const nlohmann::json::exception&) {
    if (entries.size() > 1) return send(entries.first(1));
    throw Refused("invalid entry in the spool");
  }
  return 1;
}

void ServerClient::open(const Json& payload) {
  const auto key = payload.at("key").get<std::string>();
  const auto mode = payload.at("mode").get<std::string>();
  const auto nullable = [&](const char* name) {
    const auto text = payload.at(name).get<std::string>();
    return text.empty() ? Json() : Json(text);
  };
  const auto get = [&] {
    return post(client("logger/get/run"), {{"apiKey", api_key_},
                                           {"local_timestamp", unix_milliseconds()},
                                           {"previousExperiment", key},
                                           {"libVersion", spoken_version}});
  };
  nlohmann::json answer;
  try {
    if (mode == "get") {
      answer = get();
    } else {
      // If the response was lost, the retry finds that the server already has the experiment.
      const bool or_get = mode == "get_or_create" || payload.at("is_new") == true;
      try {
        answer = post(client("logger/add/run"), {{"apiKey", api_key_},
                                                 {"local_timestamp", unix_milliseconds()},
                                                 {"experimentKey", key},
                                                 {"offline", false},
                                                 {"projectName", nullable("project")},
                                                 {"teamName", nullable("workspace")},
                                                 {"libVersion", spoken_version},
                                                 {"getOrCreateEnabled", or_get}});
      } catch (const Denied& denied) {
        if (denied.code != exists || (!answer_was_lost_ && !or_get)) throw;
        answer = get();
      } catch (const Unreachable&) {
        answer_was_lost_ = true;
        throw;
      }
    }
  } catch (const Denied& denied) {
    // Without its experiment nothing from the run could be sent, so everything waits until the user fixes
    // that.
    throw Unreachable(denied.what());
  }
  key_ = key;
  run_id_ = text_in(answer, "runId");
  project_id_ = text_in(answer, "project_id");
  say_alive(true);
}

namespace {

nlohmann::ordered_json value_of(const nlohmann::ordered_json& entry) {
  const auto& payload = entry.at("payload");
  if (entry.at("type") == "metric_msg") {
    auto value = payload.at("metric");
    value["context"] = nullptr;
    value["timestamp"] = payload.at("local_timestamp");
    return value;
  }
  const auto& given = payload.at(payload.contains("params") ? "params" : "param");
  return {{"parameterName", given.at("paramName")},
          {"parameterValue", given.at("paramValue")},
          {"step", given.at("step")},
          {"source", given.at("source")},
          {"context", nullptr},
          {"timestamp", payload.at("local_timestamp")}};
}

}  // namespace

std::size_t ServerClient::send_batch(std::span<const Json> entries, const std::string& type) {
  auto values = Json::array();
  for (const auto& entry : entries.first(std::min(entries.size(), batch_))) {
    if (entry.at("type") != type) break;
    values.push_back(value_of(entry));
  }
  const auto count = values.size();
  try {
    post(
        client(type == "metric_msg" ? "batch/logger/experiment/metric" : "batch/logger/experiment/parameter"),
        {{"experimentKey", key_}, {"values", std::move(values)}});
  } catch (const Denied&) {
    if (count == 1) throw;
    batch_ = count / 2;
    return send_batch(entries, type);
  }
  batch_ = std::min(std::max(batch_, 2 * count), most_at_once);
  return count;
}

void ServerClient::send_one(const Json& entry) {
  const auto& type = entry.at("type").get_ref<const std::string&>();
  const auto& payload = entry.at("payload");
  if (type == "open") {
    open(payload);
  } else if (type == "log_other") {
    post(rest("log-other"),
         {{"experimentKey", key_}, {"key", payload.at("key")}, {"value", payload.at("value")}});
  } else if (type == "graph") {
    post(rest("graph"), {{"experimentKey", key_}, {"graph", payload.at("graph")}});
  } else if (type == "file_name") {
    post(rest("file-path"), {{"experimentKey", key_}, {"filePath", payload.at("file_name")}});
  } else if (type == "tags") {
    post(rest("tags"), {{"experimentKey", key_}, {"addedTags", payload.at("tags")}});
  } else if (type == "system_details") {
    post(fmt::format("{}/clientlib/rest/v2/write/experiment/system-details", rest_url_),
         {{"command", payload.at("command")},
          {"env", payload.at("env")},
          {"executable", payload.at("python_exe")},
          {"experimentKey", key_},
          {"hostname", payload.at("hostname")},
          {"ip", payload.at("ip")},
          {"machine", payload.at("machine")},
          {"os", payload.at("os")},
          {"osRelease", payload.at("os_release")},
          {"osType", payload.at("os_type")},
          {"pid", payload.at("pid")},
          {"processor", payload.at("processor")},
          {"pythonVersion", payload.at("python_version")},
          {"pythonVersionVerbose", payload.at("python_version_verbose")},
          {"user", payload.at("user")}});
  } else if (type == "file_upload") {
    send_asset(entry);
  } else if (type == "fail") {
    post(rest("update-status"),
         {{"experimentKey", key_}, {"isAlive", true}, {"error", payload.at("error")}, {"hasCrashed", true}});
  } else if (type == "end") {
    close(payload);
  } else {
    throw Refused(fmt::format("unknown message type {}", printable(type)));
  }
}

void ServerClient::send_asset(const Json& entry) {
  const auto& payload = entry.at("payload");
  const auto& asset = payload.at("additional_params");
  const auto type = payload.at("upload_type").get<std::string>();
  const bool is_image = type == "visualization";
  const auto name = asset.at(is_image ? "figName" : "fileName").get<std::string>();
  auto url = fmt::format("{}?experimentKey={}&fileName={}&step={}&overwrite=false&type={}",
                         rest("upload-asset"), url_escaped(key_), url_escaped(name),
                         asset.at("step").get<std::int64_t>(), is_image ? "image" : type);
  const auto extension = is_image ? ".png" : std::filesystem::path(name).extension().string();
  if (!extension.empty()) url += "&extension=" + url_escaped(extension);
  if (const auto& metadata = payload.at("metadata"); !metadata.empty())
    url += "&metadata=" + url_escaped(json_line(metadata));
  post({.method = "POST",
        .url = std::move(url),
        .file = spool_.kept(entry.at("kept").get<std::string>()),
        .form_field = "file"});
}

void ServerClient::close(const Json& payload) {
  post(rest("set-start-end-time"), {{"experimentKey", key_},
                                    {"startTimeMillis", payload.at("start")},
                                    {"endTimeMillis", payload.at("stop")}});
  say_alive(false);
  closed_ = true;
}

void ServerClient::say_alive(bool is_alive) {
  const auto answer = post(client("status-report/update"), {{"apiKey", api_key_},
                                                            {"runId", run_id_},
                                                            {"experimentKey", key_},
                                                            {"projectId", project_id_},
                                                            {"is_alive", is_alive},
                                                            {"local_timestamp", unix_milliseconds()},
                                                            {"offline", false}});
  const auto pause = std::clamp<std::int64_t>(
      number_in(answer, "is_alive_beat_duration_millis").value_or(10'000), 1000, 600'000);
  next_beat_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(pause);
}

void ServerClient::beat() {
  if (run_id_.empty() || closed_ || std::chrono::steady_clock::now() < next_beat_) return;
  next_beat_ = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  try {
    say_alive(true);
  } catch (const Error&) {
    // The next send meets the same error and reports it.
  }
}

void ServerClient::idle() { beat(); }

}  // namespace etude::inline v0::detail::comet
