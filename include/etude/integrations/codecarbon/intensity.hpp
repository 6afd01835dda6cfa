#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace etude::detail {

/// Where the electricity comes from, as far as somebody said: a country by its three letters, a region in
/// small letters.
struct CarbonPlace {
  std::string country_iso_code = {}, region = {}, cloud_provider = {}, cloud_region = {};
  std::optional<double> force_g_per_kwh = {};
};

/// What a kWh emits there, and the names of the place for the row of a run.
struct CarbonIntensity {
  double kg_per_kwh = 0;
  std::string country_name = {}, country_iso_code = {}, region = {}, cloud_provider = {}, cloud_region = {};
  std::string source = {};   ///< What the figure is, in words.
  std::string warning = {};  ///< What had to be assumed, if anything.
};

/// The intensity of a place: that of its cloud, else of its region, else of its country, else the world's
/// average. `data_dir` is the folder of CodeCarbon's tables, or empty: then only the countries of
/// national_intensities.hpp are known. Throws ArgumentError for tables that can't be read.
CarbonIntensity carbon_intensity(const CarbonPlace& place, const std::filesystem::path& data_dir);

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/codecarbon/impl/intensity.ipp"
#endif
