#include "etude/integrations/comet/experiment_settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/algorithm/string/classification.hpp>
#include <boost/algorithm/string/trim.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>

#include "etude/base/base64.hpp"
#include "etude/base/error.hpp"
#include "etude/base/lower_case.hpp"
#include "etude/integrations/comet.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/http.hpp"
#include "etude/integrations/shared/ini.hpp"
#include "etude/integrations/shared/outbox.hpp"
#include "etude/integrations/shared/text.hpp"
#include "etude/io/file_system.hpp"

namespace etude::inline v0::detail::comet {

namespace {

/// Comet's variables: from the environment, then from the files that `comet login` and similar commands
/// write, in the order in which its client searches them.
class Configuration {
 public:
  Configuration() {
    namespace fs = std::filesystem;
    std::error_code error;
    read_lines(".env");
    if (const auto named = environment("COMET_CONFIG"))
      read(fs::is_directory(*named, error) ? fs::path(*named) / ".comet.config" : fs::path(*named));
    read(".comet.config");
    if (const auto home = environment("HOME")) read(fs::path(*home) / ".comet.config");
  }

  std::optional<std::string> operator()(const std::string& name) const {
    if (auto value = environment(name.c_str())) return value;
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  std::string pick(const std::string& option, const char* name, const std::string& otherwise = "") const {
    return !option.empty() ? option : (*this)(name).value_or(otherwise);
  }

  /// A boolean variable, parsed as Comet's client does.
  std::optional<bool> answer(const char* name) const {
    const auto text = (*this)(name);
    if (!text) return std::nullopt;
    if (const auto said = read_bool(*text)) return said;
    throw ArgumentError(fmt::format(
        "CometCallback: {} is '{}': must be 1 or 0, true or false, yes or no, on or off", name, *text));
  }

 private:
  /// Reads lines NAME=VALUE, with or without quotes, and ignores other lines.
  void read_lines(const std::filesystem::path& path) {
    constexpr std::string_view exported = "export ";
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const auto equals = line.find('=');
      if (equals == line.npos) continue;
      auto name = without_blanks(std::string_view(line).substr(0, equals));
      if (name.starts_with(exported)) name = without_blanks(name.substr(exported.size()));
      std::string value(without_blanks(std::string_view(line).substr(equals + 1)));
      boost::trim_if(value, boost::is_any_of("'\""));
      if (name.starts_with("COMET_") && !value.empty()) values_.insert_or_assign(std::string(name), value);
    }
  }

  /// Reads an INI file: online in [comet_start] is COMET_START_ONLINE. Earlier values win.
  void read(const std::filesystem::path& path) {
    for (const auto& [section, entries] : read_ini(path))
      for (const auto& [name, value] : entries)
        if (!value.empty()) values_.emplace(upper_case(section + '_' + name), value);
  }

  std::map<std::string, std::string> values_;
};

/// The server that a key names after a *, as {"baseUrl": ...} in Base64; empty if it names none.
std::string server_in(const std::string& api_key) {
  const auto star = api_key.find('*');
  if (star == api_key.npos) return "";
  const auto info = from_base64(std::string_view(api_key).substr(star + 1));
  return text_in(nlohmann::json::parse(info.value_or(""), nullptr, false), "baseUrl");
}

void set_servers(Settings& settings, const Configuration& variable, const std::string& option) {
  auto address = variable.pick(option, "COMET_URL_OVERRIDE");
  if (address.empty()) {
    auto root = server_in(settings.api_key);
    while (root.ends_with('/')) root.pop_back();
    address = (root.empty() ? "https://www.comet.com" : root) + "/clientlib/";
  }
  settings.client_url = without_credentials(address, "CometCallback: url_override (or COMET_URL_OVERRIDE)",
                                            settings.user, settings.password);
  constexpr std::string_view clientlib = "/clientlib";
  settings.rest_url = settings.client_url;
  if (settings.rest_url.ends_with(clientlib))
    settings.rest_url.resize(settings.rest_url.size() - clientlib.size());
}

/// Configures certificate checks from Comet's own variables and Python's, as its client does.
void set_certificates(Settings& settings, const Configuration& variable) {
  settings.verify = variable.answer("COMET_INTERNAL_CHECK_TLS_CERTIFICATE").value_or(true);
  std::error_code error;
  for (const char* name : {"COMET_INCLUDE_CUSTOM_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}) {
    const auto path = variable(name);
    if (!path) continue;
    if (!std::filesystem::is_regular_file(*path, error))
      throw ArgumentError(
          fmt::format("CometCallback: {} is '{}': must be a file of certificates in PEM", name, *path));
    settings.certificates = *path;
    return;
  }
}

/// Warns about variables that are set but unsupported here.
void warn_of_others(Settings& settings, const Configuration& variable) {
  std::vector<std::string> found;
  for (const char* name : {"COMET_INI", "COMET_ALLOW_HEADER_NAME", "COMET_LOGGING_METRICS_IGNORE",
                           "COMET_LOGGING_OTHERS_IGNORE", "COMET_LOGGING_PARAMETERS_IGNORE"})
    if (variable(name)) found.emplace_back(name);
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (const std::string_view text(*entry); text.starts_with("COMET_LOG_OTHER_"))
      found.emplace_back(text.substr(0, text.find('=')));
  if (!found.empty())
    settings.notices.push_back(
        {LogLevel::warning,
         fmt::format("CometCallback: these variables have no effect here: {}", fmt::join(found, ", "))});
}

void set_key(Settings& settings, const Configuration& variable, const CometCallback& callback,
             const TrainerState& state) {
  auto given = variable.pick(callback.experiment_key, "COMET_EXPERIMENT_KEY");
  if (state.is_hyper_param_search) {
    settings.mode = "create";  // each trial is a separate experiment
    given.clear();
  }
  const bool is_right =
      given.size() >= 32 && given.size() <= 50 && std::all_of(given.begin(), given.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      });
  if (!given.empty() && !is_right)
    throw ArgumentError(
        fmt::format("CometCallback: experiment_key (or COMET_EXPERIMENT_KEY) is '{}': must be 32 to 50 "
                    "letters and digits",
                    given));
  const bool continues =
      !callback.state.run_key.empty() && (given.empty() || given == callback.state.run_key);
  if (settings.mode == "get" && given.empty() && !continues)
    throw ArgumentError(
        "CometCallback: mode (or COMET_MODE) is 'get', which needs experiment_key (or COMET_EXPERIMENT_KEY)");
  settings.key_is_new = given.empty() && !continues;
  settings.key = !given.empty() ? given : continues ? callback.state.run_key : random_name() + random_name();
  // The earlier part may not have been uploaded when this one is.
  if (continues && settings.mode == "create") settings.mode = "get_or_create";
}

}  // namespace

Settings settings_of(const CometCallback& callback, const TrainingArguments& args,
                     const TrainerState& state) {
  Settings settings;
  const Configuration variable;
  const auto mode = lower_case(
      variable.pick(callback.mode, "COMET_MODE", variable("COMET_START_MODE").value_or("get_or_create")));
  std::optional<bool> online = callback.online;
  constexpr std::array<std::string_view, 3> old_modes{"online", "offline", "disabled"};
  if (std::find(old_modes.begin(), old_modes.end(), mode) != old_modes.end()) {
    settings.notices.push_back(
        {LogLevel::warning, fmt::format("CometCallback: the mode (or COMET_MODE) '{}' belongs to an earlier "
                                        "version: use COMET_START_ONLINE, "
                                        "and get_or_create, create or get here",
                                        mode)});
    settings.disabled = mode == "disabled";
    if (!online && !settings.disabled) online = mode == "online";
    settings.mode = "get_or_create";
  } else if (mode == "get_or_create" || mode == "create" || mode == "get") {
    settings.mode = mode;
  } else {
    throw ArgumentError(fmt::format(
        "CometCallback: mode (or COMET_MODE) is '{}': must be get_or_create, create or get", mode));
  }
  if (variable.answer("COMET_AUTO_LOG_DISABLE").value_or(false)) settings.disabled = true;
  if (settings.disabled) return settings;

  if (!online) online = variable.answer("COMET_START_ONLINE");
  settings.api_key = variable.pick(callback.api_key, "COMET_API_KEY");
  if (online.value_or(false) && settings.api_key.empty())
    throw ArgumentError(
        "CometCallback: online (or COMET_START_ONLINE) needs a key: set COMET_API_KEY, or train offline");
  settings.online = online.value_or(true) && !settings.api_key.empty();
  set_servers(settings, variable, callback.url_override);
  if (settings.online) set_certificates(settings, variable);
  warn_of_others(settings, variable);
  set_key(settings, variable, callback, state);

  settings.project = variable.pick(callback.project_name, "COMET_PROJECT_NAME");
  settings.workspace = variable.pick(callback.workspace, "COMET_WORKSPACE");
  const auto run_name = args.run_name == args.output_dir ? std::nullopt : args.run_name;
  const auto name = state.is_hyper_param_search ? state.trial_name : run_name;
  settings.name =
      variable.pick(!callback.experiment_name.empty() ? callback.experiment_name : name.value_or(""),
                    "COMET_START_EXPERIMENT_NAME", variable("COMET_EXPERIMENT_NAME").value_or(""));
  settings.tags = !callback.tags.empty()
                      ? callback.tags
                      : comma_separated(variable("COMET_START_EXPERIMENT_TAGS").value_or(""));
  settings.offline_directory =
      variable.pick(callback.offline_directory, "COMET_OFFLINE_DIRECTORY", ".cometml-runs");
  if (!online && settings.api_key.empty())
    settings.notices.push_back(
        {LogLevel::warning,
         fmt::format("CometCallback: the API key (COMET_API_KEY) is missing, so the training is logged "
                     "offline, in {}; COMET_START_ONLINE=0 hides this warning",
                     settings.offline_directory.string())});
  settings.spool_directory = spool_directory(callback.spool_directory);
  settings.log_program = variable.answer("COMET_AUTO_LOG_CODE").value_or(true);
  settings.log_host = variable.answer("COMET_AUTO_LOG_ENV_HOST").value_or(true) &&
                      variable.answer("COMET_AUTO_LOG_ENV_DETAILS").value_or(true);
  settings.log_assets = callback.log_assets.value_or(means_yes(variable("COMET_LOG_ASSETS").value_or("")));
  return settings;
}

bool is_configured() {
  try {
    const Configuration variable;
    const auto mode = lower_case(variable("COMET_MODE").value_or(""));
    if (mode == "disabled" || variable.answer("COMET_AUTO_LOG_DISABLE") == true) return false;
    return variable("COMET_API_KEY") || mode == "offline" || variable.answer("COMET_START_ONLINE") == false;
  } catch (const ArgumentError&) {
    return true;  // reported when training begins
  }
}

}  // namespace etude::inline v0::detail::comet
