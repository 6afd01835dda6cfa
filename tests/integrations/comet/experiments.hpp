#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/toy.hpp"
#include "etude/checkpoint/zip_archive.hpp"
#include "etude/integrations/comet.hpp"

/// What the tests of CometCallback share.
namespace comets {

using etude::CometCallback;
using Json = nlohmann::json;
namespace fs = std::filesystem;

/// The environment has these of Comet's variables, and no others.
class Variables {
 public:
  using Set = std::map<std::string, std::string>;

  explicit Variables(const Set& set = {}) {
    for (const auto* name :
         {"COMET_API_KEY", "COMET_MODE", "COMET_START_MODE", "COMET_START_ONLINE", "COMET_PROJECT_NAME",
          "COMET_WORKSPACE", "COMET_EXPERIMENT_KEY", "COMET_OFFLINE_DIRECTORY", "COMET_LOG_ASSETS",
          "COMET_URL_OVERRIDE", "COMET_START_EXPERIMENT_NAME", "COMET_START_EXPERIMENT_TAGS", "COMET_CONFIG",
          "HOME"}) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      ::unsetenv(name);
      names_.emplace_back(name);
    }
    ::setenv("HOME", "/nonexistent", 1);  // where a person has a key
    for (const auto& [name, value] : set) ::setenv(name.c_str(), value.c_str(), 1);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
  ~Variables() {
    for (const auto& name : names_) {
      ::unsetenv(name.c_str());
      if (before_.contains(name)) ::setenv(name.c_str(), before_[name].c_str(), 1);
    }
  }

 private:
  std::vector<std::string> names_;
  Set before_;
};

struct Experiment {
  std::string name;
  Json facts;
  std::vector<Json> messages;
  std::map<std::string, std::string> files;

  std::vector<Json> of(const std::string& type) const {
    std::vector<Json> found;
    for (const auto& message : messages)
      if (message.at("type") == type) found.push_back(message.at("payload"));
    return found;
  }
  std::string key() const { return facts.at("offline_id"); }
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

/// The archives of a folder, in the order in which they were begun.
inline std::vector<Experiment> experiments(const fs::path& folder) {
  std::vector<Experiment> found;
  for (const auto& name : toy::names_in(folder)) {
    if (!name.ends_with(".zip")) continue;
    const etude::ZipArchive archive(folder / name);
    Experiment one;
    one.name = name;
    for (const auto& [file, entry] : archive.entries()) one.files[file] = archive.read(entry);
    one.facts = Json::parse(one.files.at("experiment.json"));
    std::istringstream lines(one.files.at("messages.json"));
    for (std::string line; std::getline(lines, line);) one.messages.push_back(Json::parse(line));
    found.push_back(std::move(one));
  }
  std::ranges::stable_sort(
      found, {}, [](const auto& one) { return one.facts.at("stop_time").template get<std::int64_t>(); });
  return found;
}

inline etude::TrainingArguments arguments(const toy::Folder& folder) {
  auto args = toy::arguments();
  args.output_dir = folder / "out";
  args.num_train_epochs = 2;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = 2;
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
