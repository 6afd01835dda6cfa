#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <concepts>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/integrations/codecarbon/settings.hpp"
#include "etude/io/file_text.hpp"
#include "etude/reflect/key_values.hpp"

namespace etude::detail {
namespace codecarbon {

inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r\n";
  const auto first = text.find_first_not_of(blank);
  return first == text.npos ? "" : text.substr(first, text.find_last_not_of(blank) + 1 - first);
}

inline std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

inline std::string upper(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

[[noreturn]] inline void refuse(const std::string& name, std::string_view value, std::string_view allowed) {
  throw ArgumentError(fmt::format("{} is {}: must be {}", name, in_quotes(value), allowed));
}

inline bool flag(const std::string& name, const std::string& value) {
  const auto word = lower(value);
  if (word == "true" || word == "1" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "0" || word == "no" || word == "off") return false;
  refuse(name, value, "true or false");
}

inline double number(const std::string& name, const std::string& value) {
  const auto result = read_number<double>(value);
  if (!result) refuse(name, value, "a number");
  return *result;
}

/// Those which CodeCarbon has and which change nothing of what is measured or written here.
inline constexpr std::array quiet_names{
    "log_level",         "logger_preamble", "allow_multiple_runs",      "on_csv_write",
    "api_call_interval", "experiment_name", "country_2letter_iso_code", "save_to_logger"};

}  // namespace codecarbon

ETUDE_INLINE std::map<std::string, std::string> codecarbon_section(std::string_view text) {
  std::map<std::string, std::string> values;
  bool is_ours = false;
  std::string* last = nullptr;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size() - 1);
    const auto raw = text.substr(0, end + 1);
    text.remove_prefix(end + 1);
    const auto line = codecarbon::trimmed(raw);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[' && line.back() == ']') {
      is_ours = line == "[codecarbon]";
      last = nullptr;
    } else if (is_ours && last != nullptr && (raw.front() == ' ' || raw.front() == '\t')) {
      last->append("\n").append(line);
    } else if (const auto equals = line.find_first_of("=:"); is_ours && equals != line.npos) {
      last = &values[codecarbon::lower(codecarbon::trimmed(line.substr(0, equals)))];
      *last = codecarbon::trimmed(line.substr(equals + 1));
    }
  }
  return values;
}

ETUDE_INLINE CodeCarbonConfiguration codecarbon_configuration() {
  CodeCarbonConfiguration values;
  const auto add_file = [&](const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (auto& [name, value] : codecarbon_section(text))
      if (!value.empty()) values[name] = {value, path.string()};
  };
  if (const char* home = std::getenv("HOME")) add_file(std::filesystem::path(home) / ".codecarbon.config");
  std::error_code error;
  if (const auto here = std::filesystem::current_path(error); !error) add_file(here / ".codecarbon.config");
  constexpr std::string_view prefix = "codecarbon_";
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const auto equals = text.find('=');
    if (equals == text.npos || equals + 1 == text.size()) continue;
    const auto name = codecarbon::lower(text.substr(0, equals));
    if (name.starts_with(prefix))
      values[name.substr(prefix.size())] = {std::string(text.substr(equals + 1)),
                                            std::string(text.substr(0, equals))};
  }
  return values;
}

ETUDE_INLINE CodeCarbonSettings codecarbon_settings(const CodeCarbonCallback& options,
                                                    const CodeCarbonConfiguration& configured,
                                                    const std::string& training_output_dir) {
  CodeCarbonSettings settings{options, {}};
  auto& set = settings.options;
  auto left = configured;
  // What an ArgumentError names: the option, or the place where it was configured.
  std::map<std::string, std::string, std::less<>> names;
  for_each_field(set, [&](std::string_view name, std::string_view, auto& member) {
    using Member = std::remove_reference_t<decltype(member)>;
    const std::string field(name);
    names[field] = field;
    if constexpr (std::same_as<Member, std::string> || std::same_as<Member, std::optional<bool>> ||
                  std::same_as<Member, std::optional<double>>) {
      const auto found = field == "run_id" ? left.end() : left.find(field);
      if (found == left.end()) return;
      const auto [value, source] = found->second;
      left.erase(found);
      if (member != Member()) return;
      names[field] = source.starts_with('/') ? fmt::format("{} in {}", field, source) : source;
      if constexpr (std::same_as<Member, std::string>)
        member = value;
      else if constexpr (std::same_as<Member, std::optional<bool>>)
        member = codecarbon::flag(names[field], value);
      else
        member = codecarbon::number(names[field], value);
    }
  });

  if (const auto methods = left.find("output_methods"); methods != left.end()) {
    const auto value = codecarbon::lower(methods->second.value);
    if (!set.save_to_file) set.save_to_file = value.find("csv") != value.npos;
    if (value == "csv") left.erase(methods);
  }
  for (const auto* name : codecarbon::quiet_names) left.erase(name);
  for (const auto& [name, value] : left) settings.without_effect.push_back(name);

  const auto otherwise = [](std::string& text, std::string_view value) {
    if (text.empty()) text = value;
  };
  otherwise(set.project_name, "codecarbon");
  otherwise(set.experiment_id, "5b0fa12a-3dd7-45bb-9766-cc326314d9f1");
  otherwise(set.output_dir, training_output_dir);
  otherwise(set.output_file, "emissions.csv");
  otherwise(set.tracking_mode, "machine");
  otherwise(set.rapl_dir, "/sys/class/powercap");
  if (!set.save_to_file) set.save_to_file = true;
  if (!set.measure_power_secs) set.measure_power_secs = 15;
  if (!set.pue) set.pue = 1;
  if (!set.wue) set.wue = 0;
  set.country_iso_code = codecarbon::upper(set.country_iso_code);
  set.region = codecarbon::lower(set.region);

  const auto at_least = [&](const char* name, const std::optional<double>& value, double least) {
    if (value && !(std::isfinite(*value) && *value >= least))
      codecarbon::refuse(names[name], fmt::format("{}", *value), fmt::format("{} or more", least));
  };
  at_least("measure_power_secs", set.measure_power_secs, 0.1);
  at_least("force_carbon_intensity_g_co2e_kwh", set.force_carbon_intensity_g_co2e_kwh, 0);
  at_least("force_cpu_power", set.force_cpu_power, 0);
  at_least("force_ram_power", set.force_ram_power, 0);
  at_least("pue", set.pue, 1);
  at_least("wue", set.wue, 0);
  if (set.tracking_mode != "machine" && set.tracking_mode != "process")
    codecarbon::refuse(names["tracking_mode"], set.tracking_mode, "machine or process");
  const auto& country = set.country_iso_code;
  if (!country.empty() &&
      (country.size() != 3 || !std::ranges::all_of(country, [](unsigned char c) { return std::isalpha(c); })))
    codecarbon::refuse(names["country_iso_code"], country, "the three letters of ISO 3166 (FRA)");
  if (set.output_file.find('/') != set.output_file.npos)
    codecarbon::refuse(names["output_file"], set.output_file, "the name of a file, without a folder");
  std::error_code error;
  if (!set.data_dir.empty() && !std::filesystem::is_directory(set.data_dir, error))
    codecarbon::refuse(names["data_dir"], set.data_dir, "a folder");
  return settings;
}

}  // namespace etude::detail
