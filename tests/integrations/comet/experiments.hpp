#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/toy.hpp"
#include "common/variables.hpp"
#include "etude/formats/zip_archive.hpp"
#include "etude/integrations/comet.hpp"

/// Shared by the tests of CometCallback.
namespace comets {

using etude::CometCallback;
using Json = nlohmann::json;
namespace fs = std::filesystem;

/// Sets the given environment variables, and unsets all other variables of Comet.
struct Variables : toy::Variables {
  explicit Variables(Set set = {})
      : toy::Variables((set.emplace("HOME", "/nonexistent"), set),
                       [](std::string_view name) {  // HOME hides the user's key
                         return name.starts_with("COMET_") || name.ends_with("_CA_BUNDLE");
                       }) {}
};

struct Experiment {
  std::string name;
  Json info;
  std::vector<Json> messages;
  std::map<std::string, std::string> files;

  std::vector<Json> of(const std::string& type) const {
    std::vector<Json> found;
    for (const auto& message : messages)
      if (message.at("type") == type) found.push_back(message.at("payload"));
    return found;
  }
  std::string key() const { return info.at("offline_id"); }
  std::map<std::string, Json> others() const {
    std::map<std::string, Json> found;
    for (const auto& payload : of("log_other")) found[payload.at("key")] = payload.at("value");
    return found;
  }
  /// The values of a parameter, in order.
  std::vector<Json> parameter(const std::string& parameter_name) const {
    std::vector<Json> values;
    for (const auto& payload : of("parameter_msg")) {
      const auto& given = payload.contains("param") ? payload.at("param") : payload.at("params");
      if (given.at("paramName") == parameter_name) values.push_back(given.at("paramValue"));
    }
    return values;
  }
  /// (step, value) of a metric, in order.
  std::vector<std::pair<int, Json>> metric(const std::string& metric_name) const {
    std::vector<std::pair<int, Json>> values;
    for (const auto& payload : of("metric_msg"))
      if (const auto& given = payload.at("metric"); given.at("metricName") == metric_name)
        values.emplace_back(given.at("step"), given.at("metricValue"));
    return values;
  }
  std::vector<int> steps(const std::string& metric_name) const {
    std::vector<int> steps;
    for (const auto& [step, value] : metric(metric_name)) steps.push_back(step);
    return steps;
  }
};

/// The archives of a folder, oldest first.
inline std::vector<Experiment> experiments(const fs::path& folder) {
  std::vector<Experiment> found;
  for (const auto& name : toy::names_in(folder)) {
    if (!name.ends_with(".zip")) continue;
    const etude::ZipArchive archive(folder / name);
    Experiment one;
    one.name = name;
    for (const auto& [file, entry] : archive.entries()) one.files[file] = archive.read(entry);
    one.info = Json::parse(one.files.at("experiment.json"));
    std::istringstream lines(one.files.at("messages.json"));
    for (std::string line; std::getline(lines, line);) one.messages.push_back(Json::parse(line));
    found.push_back(std::move(one));
  }
  std::ranges::stable_sort(
      found, {}, [](const auto& one) { return one.info.at("stop_time").template get<std::int64_t>(); });
  return found;
}

inline etude::TrainingArguments arguments(const toy::Folder& folder) {
  auto args = toy::logged_arguments(folder / "out");
  toy::save_to(args.output_dir, args, 2);
  return args;
}

inline CometCallback offline(const toy::Folder& folder) {
  CometCallback callback;
  callback.online = false;
  callback.offline_directory = folder / "comet";
  callback.spool_directory = folder / "spool";
  return callback;
}

}  // namespace comets
