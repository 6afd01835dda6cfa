#include "etude/integrations/codecarbon/intensity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/lower_case.hpp"
#include "etude/base/read_file.hpp"
#include "etude/formats/csv_text.hpp"
#include "etude/integrations/codecarbon/national_intensities.hpp"

namespace etude::inline v0::detail {
namespace intensity {

namespace {

constexpr double kg_per_g = 0.001, kg_per_kwh_of_lbs_per_mwh = 0.00045359237;

nlohmann::json read_json(const std::filesystem::path& path) {
  auto json = nlohmann::json::parse(read_codecarbon_table(path), nullptr, false);
  if (!json.is_object())
    throw ArgumentError(
        fmt::format("data_dir: {} isn't a JSON object: must be a table of CodeCarbon's", path.string()));
  return json;
}

/// The newest file of this name, among folders named after years.
nlohmann::json read_newest(const std::filesystem::path& data_dir, const std::string& name) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(data_dir / "private_infra", error))
    if (std::filesystem::exists(entry.path() / name, error)) found.push_back(entry.path() / name);
  if (found.empty())
    throw ArgumentError(
        fmt::format("data_dir is {}: it has no private_infra/YEAR/{}", data_dir.string(), name));
  return read_json(*std::ranges::max_element(found));
}

std::optional<double> number(const nlohmann::json& object, const std::string& name) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

const nlohmann::json* member(const nlohmann::json& object, const std::string& name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

/// A Canadian province's intensity from CodeCarbon's factors of the three fuels, in kg per kWh.
std::optional<double> of_mix(const nlohmann::json& mix) {
  const auto total = number(mix, "total");
  if (!total || *total <= 0) return std::nullopt;
  double sum = 0;
  for (const auto& [fuel, factor] : {std::pair<std::string, double>{"coal", 0.995725971},
                                     {"petroleum", 0.8166885263},
                                     {"naturalGas", 0.7438415916}})
    sum += number(mix, fuel).value_or(0) / *total * factor;
  return sum;
}

std::string chinese_province(std::string name) {
  for (const std::string_view suffix :
       {" autonomous region", " municipality", " province", " sheng", " shi", " zizhiqu"})
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  return name;
}

bool is_nordic_zone(const std::string& country, const std::string& zone) {
  const auto numbered = [&](std::string_view letters, char last) {
    return zone.size() == 3 && zone.starts_with(letters) && zone[2] >= '1' && zone[2] <= last;
  };
  return (country == "SWE" && numbered("se", '4')) || (country == "NOR" && numbered("no", '5')) ||
         (country == "FIN" && zone == "fi");
}

bool has_regions(const CarbonPlace& place) {
  const auto& country = place.country_iso_code;
  return country == "USA" || country == "CAN" || country == "CHN" || is_nordic_zone(country, place.region);
}

std::optional<double> of_region(const CarbonPlace& place, const std::filesystem::path& data_dir) {
  const auto& region = place.region;
  if (place.country_iso_code == "USA") {
    const auto table = read_newest(data_dir, "usa_emissions.json");
    const auto* state = region.starts_with('_') ? nullptr : member(table, region);
    const auto emissions = state ? number(*state, "emissions") : std::nullopt;
    if (!emissions) return std::nullopt;
    return *emissions * kg_per_kwh_of_lbs_per_mwh;
  }
  if (place.country_iso_code == "CAN") {
    const auto table = read_newest(data_dir, "canada_energy_mix.json");
    const auto* province = member(table, region);
    return province ? of_mix(*province) : std::nullopt;
  }
  const bool china = place.country_iso_code == "CHN";
  const auto table = china ? read_newest(data_dir, "china_provincial_emissions.json")
                           : read_json(data_dir / "private_infra" / "nordic_emissions.json");
  const auto* zones = member(table, "data");
  if (zones == nullptr || !zones->is_object()) return std::nullopt;
  for (const auto& [zone, info] : zones->items()) {
    const auto* names = member(info, "names");
    const bool is_it =
        china ? names != nullptr && names->is_array() &&
                    std::ranges::find(*names, nlohmann::json(chinese_province(region))) != names->end()
              : lower_case(zone) == region;
    if (!is_it) continue;
    const auto factor = number(info, "emission_factor");
    if (!factor) return std::nullopt;
    return *factor / 1000;
  }
  return std::nullopt;
}

/// A cloud region's row in the table, by column name; empty if there is none.
std::map<std::string, std::string> cloud(const CarbonPlace& place, const std::filesystem::path& data_dir) {
  auto text = read_codecarbon_table(data_dir / "cloud" / "impact.csv");
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  if (!text.ends_with('\n')) text += '\n';
  std::vector<std::string> columns;
  for (const auto& record : csv_records(text)) {
    const auto fields = csv_fields(record);
    if (columns.empty()) {
      columns = fields;
      continue;
    }
    std::map<std::string, std::string> row;
    for (std::size_t i = 0; i < std::min(columns.size(), fields.size()); ++i) row[columns[i]] = fields[i];
    if (row["provider"] == place.cloud_provider && row["region"] == place.cloud_region) return row;
  }
  return {};
}

void set_country(CarbonIntensity& result, const std::filesystem::path& data_dir) {
  const auto& country = result.country_iso_code;
  if (country.empty()) {
    result.kg_per_kwh = world_intensity * kg_per_g;
    result.source = "the world's average";
    return;
  }
  std::optional<double> g_per_kwh;
  if (!data_dir.empty()) {
    const auto table = read_json(data_dir / "private_infra" / "global_energy_mix.json");
    if (const auto* info = member(table, country)) {
      g_per_kwh = number(*info, "carbon_intensity");
      if (const auto* name = member(*info, "country_name"); name != nullptr && name->is_string())
        result.country_name = *name;
    }
  } else if (const auto* found =
                 std::ranges::find(national_intensities, country, &NationalIntensity::iso_code);
             found != std::end(national_intensities)) {
    g_per_kwh = found->g_per_kwh;
    result.country_name = found->name;
  }
  result.kg_per_kwh = g_per_kwh.value_or(world_intensity) * kg_per_g;
  result.source = g_per_kwh ? result.country_name : "the world's average";
  if (!g_per_kwh && result.warning.empty())
    result.warning = fmt::format(
        "the carbon intensity of {} isn't known{}, so the world's average counts, {} g/kWh: set "
        "force_carbon_intensity_g_co2e_kwh",
        country, data_dir.empty() ? " without data_dir" : "", world_intensity);
}

}  // namespace

}  // namespace intensity

std::string read_codecarbon_table(const std::filesystem::path& path) {
  auto text = read_file(path);
  if (!text)
    throw ArgumentError(
        fmt::format("data_dir: {} can't be read: must be a table of CodeCarbon's", path.string()));
  return *std::move(text);
}

CarbonIntensity carbon_intensity(const CarbonPlace& place, const std::filesystem::path& data_dir) {
  CarbonIntensity result{.country_iso_code = place.country_iso_code,
                         .region = place.region,
                         .cloud_provider = place.cloud_provider,
                         .cloud_region = place.cloud_region};
  const bool on_cloud = !place.cloud_provider.empty() || !place.cloud_region.empty();
  std::optional<double> of_cloud, of_region;
  if (on_cloud && !data_dir.empty()) {
    auto row = intensity::cloud(place, data_dir);
    if (const auto g_per_kwh = nlohmann::json::parse(row["impact"], nullptr, false); g_per_kwh.is_number()) {
      of_cloud = g_per_kwh.get<double>() * intensity::kg_per_g;
      result.country_name = row["country_name"];
      result.country_iso_code = row["countryIsoCode"];
      result.region = row["state"].empty() ? row["city"] : row["state"];
    }
  }
  if (!of_cloud) intensity::set_country(result, data_dir);
  if (!of_cloud && !data_dir.empty() && !place.region.empty() && intensity::has_regions(place))
    of_region = intensity::of_region(place, data_dir);

  const auto world = fmt::format("the world's average, {} g/kWh", world_intensity);
  if (place.force_g_per_kwh) {
    result.kg_per_kwh = *place.force_g_per_kwh / 1000;
    result.source = "force_carbon_intensity_g_co2e_kwh";
    result.warning.clear();
  } else if (of_cloud) {
    result.kg_per_kwh = *of_cloud;
    result.source = place.cloud_provider + ' ' + place.cloud_region;
  } else if (of_region) {
    result.kg_per_kwh = *of_region;
    result.source = place.region + ", " + result.source;
    result.warning.clear();
  } else if (on_cloud) {
    result.warning =
        fmt::format("the carbon intensity of {} {} isn't known{}, so that of {} counts", place.cloud_provider,
                    place.cloud_region, data_dir.empty() ? " without data_dir" : "", result.source);
  } else if (place.country_iso_code.empty()) {
    result.warning = fmt::format(
        "the machine's country isn't set, so {} counts: set country_iso_code "
        "(CODECARBON_COUNTRY_ISO_CODE)",
        world);
  } else if (!place.region.empty() && result.warning.empty()) {
    result.warning =
        fmt::format("the carbon intensity of the region '{}' isn't known{}, so that of {} counts",
                    place.region, data_dir.empty() ? " without data_dir" : "", result.source);
  }
  return result;
}

}  // namespace etude::inline v0::detail
