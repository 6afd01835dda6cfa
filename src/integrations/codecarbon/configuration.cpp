#include "etude/integrations/codecarbon/configuration.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <concepts>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <type_traits>

#include "etude/base/error.hpp"
#include "etude/base/lower_case.hpp"
#include "etude/integrations/shared/ini.hpp"
#include "etude/integrations/shared/text.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/reflect/json_reader.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail {
namespace codecarbon {

namespace {

[[noreturn]] void refuse(const std::string& name, std::string_view value, std::string_view allowed) {
  throw ArgumentError(fmt::format("{} is {}: must be {}", name, in_quotes(value), allowed));
}

/// CodeCarbon options that affect nothing that is measured or written here.
constexpr std::array quiet_names{
    "log_level",         "logger_preamble", "allow_multiple_runs",      "on_csv_write",
    "api_call_interval", "experiment_name", "country_2letter_iso_code", "save_to_logger"};

}  // namespace

}  // namespace codecarbon

CodeCarbonConfiguration codecarbon_configuration() {
  CodeCarbonConfiguration values;
  const auto add_file = [&](const std::filesystem::path& path) {
    auto sections = read_ini(path);
    for (auto& [name, value] : sections["codecarbon"])
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
    const auto name = lower_case(text.substr(0, equals));
    if (name.starts_with(prefix))
      values[name.substr(prefix.size())] = {std::string(text.substr(equals + 1)),
                                            std::string(text.substr(0, equals))};
  }
  return values;
}

CodeCarbonSettings codecarbon_settings(const CodeCarbonCallback& options,
                                       const CodeCarbonConfiguration& configured,
                                       const std::string& training_output_dir) {
  CodeCarbonSettings settings{options, {}};
  auto& set = settings.options;
  auto left = configured;
  // The name in an ArgumentError: the option, or where it was configured.
  std::map<std::string, std::string, std::less<>> names;
  for_each_field(set, [&](std::string_view name, std::string_view, auto& member) {
    using Member = std::remove_reference_t<decltype(member)>;
    const std::string field(name);
    names[field] = field;
    const auto found = left.find(field);
    if (found == left.end()) return;
    const auto [value, source] = found->second;
    left.erase(found);
    if (member != Member()) return;
    names[field] = source.starts_with('/') ? fmt::format("{} in {}", field, source) : source;
    if constexpr (std::same_as<Member, std::string>) {
      member = value;
    } else {
      typename Member::value_type read{};
      if (!read_text(value, read))
        codecarbon::refuse(names[field], value, allowed_values<typename Member::value_type>());
      member = read;
    }
  });

  if (const auto methods = left.find("output_methods"); methods != left.end()) {
    const auto value = lower_case(methods->second.value);
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
  set.country_iso_code = upper_case(set.country_iso_code);
  set.region = lower_case(set.region);

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

}  // namespace etude::inline v0::detail
