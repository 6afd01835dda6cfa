#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace etude::inline v0::detail {

/// Where the electricity comes from, as far as known: a country by its three letters, a region in lower case.
struct CarbonPlace {
  std::string country_iso_code = {}, region = {}, cloud_provider = {}, cloud_region = {};
  std::optional<double> force_g_per_kwh = {};
};

/// The emissions per kWh in a place, and the place's names for a run's row.
struct CarbonIntensity {
  double kg_per_kwh = 0;
  std::string country_name = {}, country_iso_code = {}, region = {}, cloud_provider = {}, cloud_region = {};
  std::string source = {};   ///< The figure's origin, as text.
  std::string warning = {};  ///< The assumptions made, if any.
};

/// One of CodeCarbon's tables. Throws ArgumentError if it can't be read.
std::string read_codecarbon_table(const std::filesystem::path& path);

/// The intensity of a place's cloud, or else of its region, or else of its country, or else the world
/// average. `data_dir` is the folder of CodeCarbon's tables, or empty to use only the countries of
/// national_intensities.hpp. Throws ArgumentError for tables that can't be read.
CarbonIntensity carbon_intensity(const CarbonPlace& place, const std::filesystem::path& data_dir);

}  // namespace etude::inline v0::detail
