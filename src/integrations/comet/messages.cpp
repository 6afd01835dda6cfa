#include "etude/integrations/comet/messages.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>
#include <variant>

#include "etude/base/read_file.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/text.hpp"
#include "etude/integrations/shared/tracked_run.hpp"
#include "etude/io/file_system.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0::detail::comet {

namespace {

constexpr std::size_t longest_name = 100, longest_value = 1000;

Message message_of(std::string_view type, nlohmann::json payload) {
  return {{"type", type}, {"payload", std::move(payload)}};
}

nlohmann::json safe(double value) {
  if (std::isfinite(value)) return value;
  return std::string(non_finite_name(value));
}

/// The common form of all messages about a file.
Message upload(std::string_view type, nlohmann::json params, std::string_view file_path,
               nlohmann::json metadata, std::int64_t time) {
  params.update({{"context", nullptr}, {"overwrite", false}, {"runId", nullptr}});
  return message_of("file_upload", {{"additional_params", std::move(params)},
                                    {"clean", true},
                                    {"file_path", file_path},
                                    {"local_timestamp", time},
                                    {"metadata", std::move(metadata)},
                                    {"upload_type", type}});
}

}  // namespace

std::string shortened(const std::string& text, std::size_t most) {
  constexpr std::string_view mark = " [truncated]";
  if (characters(text) <= most) return text;
  return beginning(text, most - mark.size()).append(mark);
}

Message metric(std::string_view name, double value, std::int64_t step, double epoch, std::int64_t time) {
  return message_of("metric_msg", {{"local_timestamp", time},
                                   {"metric",
                                    {{"metricName", shortened(std::string(name), longest_name)},
                                     {"metricValue", safe(value)},
                                     {"step", step},
                                     {"epoch", safe(epoch)}}}});
}

Message parameter(std::string_view name, const nlohmann::ordered_json& value,
                  std::optional<std::int64_t> step, std::string_view source, std::int64_t time) {
  const auto scalar = [](const nlohmann::ordered_json& item) -> nlohmann::json {
    return item.is_number_float() ? safe(item.get<double>()) : nlohmann::json(item);
  };
  nlohmann::json written;
  bool is_list = false;
  if (value.is_string()) {
    written = shortened(value.get<std::string>(), longest_value);
  } else if (value.is_structured()) {
    const bool nests =
        std::any_of(value.begin(), value.end(), [](const auto& item) { return item.is_structured(); });
    const auto text = json_line(value);
    is_list = value.is_array() && !nests && text.size() <= longest_value;
    if (is_list) {
      written = nlohmann::json::array();
      for (const auto& item : value) written.push_back(scalar(item));
    } else {
      written = shortened(text, longest_value);
    }
  } else {
    written = scalar(value);
  }
  return message_of("parameter_msg", {{"local_timestamp", time},
                                      {is_list ? "params" : "param",
                                       {{"paramName", shortened(std::string(name), longest_name)},
                                        {"paramValue", std::move(written)},
                                        {"source", source},
                                        {"step", step ? nlohmann::json(*step) : nlohmann::json()}}}});
}

std::vector<Message> parameters(const nlohmann::ordered_json& values, std::int64_t time) {
  auto flat = flattened(values, "|");
  std::sort(flat.begin(), flat.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Message> messages;
  messages.push_back(other("hasNestedParams", true));
  for (const auto& [name, value] : flat) messages.push_back(parameter(name, value, {}, "manual", time));
  return messages;
}

Message other(std::string_view key, const nlohmann::json& value) {
  return message_of("log_other",
                    {{"key", shortened(std::string(key), longest_name)},
                     {"value", value.is_string() ? nlohmann::json(shortened(value, longest_value)) : value}});
}

Message graph(std::string text) { return message_of("graph", {{"graph", std::move(text)}}); }

Message file_name() { return message_of("file_name", {{"file_name", program_path()}}); }

namespace {

/// This machine's first public address, found without a name server.
std::string address() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return "127.0.0.1";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(first, &::freeifaddrs);
  for (const auto* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(one->ifa_addr, sizeof(sockaddr_in), text.data(), static_cast<socklen_t>(text.size()),
                      nullptr, 0, NI_NUMERICHOST) == 0 &&
        std::string_view(text.data()) != "127.0.0.1")
      return text.data();
  }
  return "127.0.0.1";
}

}  // namespace

Message system_details() {
  utsname system{};
  ::uname(&system);
  // Its arguments, which follow a 0, may be secret.
  const auto command = read_file("/proc/self/cmdline").value_or("");
  return message_of(
      "system_details",
      {{"command", nlohmann::json::array({command.c_str()})},
       {"env", nullptr},
       {"hostname", host_name()},
       {"ip", address()},
       {"machine", system.machine},
       {"os", system_name()},
       {"os_release", system.release},
       {"os_type", system.sysname},
       {"pid", ::getpid()},
       {"processor", system.machine},
       {"python_exe", program_path()},
       {"python_version", "none"},
       {"python_version_verbose", fmt::format("none: C++ ({}), LibTorch {}", __VERSION__, TORCH_VERSION)},
       {"user", user_name()}});
}

Message asset(std::string_view name, std::string_view file_path, std::int64_t step, std::int64_t time) {
  const auto extension = std::filesystem::path(name).extension().string();
  return upload("asset",
                {{"assetId", random_name() + random_name()},
                 {"extension", extension.empty() ? nlohmann::json() : nlohmann::json(extension.substr(1))},
                 {"fileName", name},
                 {"step", step}},
                file_path, nlohmann::json::object(), time);
}

Message asset(const Sample& sample, std::int64_t step, std::int64_t time) {
  const auto name = tracked_name(sample.name);
  auto metadata = nlohmann::json::object();
  if (!sample.caption.empty()) metadata["caption"] = shortened(sample.caption, 1000);
  const auto id = random_name() + random_name();
  nlohmann::json params{{"step", step}};
  std::string type;
  if (std::holds_alternative<ImageSample>(sample.content)) {
    type = "visualization";
    params.update({{"imageId", id}, {"figName", name}, {"figCounter", 0}});
  } else if (const auto* audio = std::get_if<AudioSample>(&sample.content)) {
    type = "audio";
    metadata["sample_rate"] = audio->sample_rate;
    params.update({{"assetId", id},
                   {"extension", "wav"},
                   {"fileName", name + ".wav"},
                   {"sampleRate", audio->sample_rate},
                   {"type", type}});
  } else {
    type = "text-sample";
    metadata["name"] = name;
    params.update(
        {{"assetId", id}, {"epoch", nullptr}, {"fileName", "auto-generated-in-the-backend"}, {"type", type}});
  }
  return upload(type, std::move(params), "", std::move(metadata), time);
}

}  // namespace etude::inline v0::detail::comet
