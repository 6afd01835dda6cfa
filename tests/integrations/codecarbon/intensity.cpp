#include "etude/integrations/codecarbon/intensity.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <set>
#include <string>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "etude/integrations/codecarbon/national_intensities.hpp"

namespace integrations_codecarbon_intensity_test {

using doctest::Approx;
using etude::detail::carbon_intensity;

/// Tables in CodeCarbon's format, with made-up figures.
struct Tables {
  toy::Folder folder;

  Tables() {
    const auto infra = folder / "private_infra";
    for (const auto& name : {"private_infra/2016", "private_infra/2023", "cloud"})
      std::filesystem::create_directories(folder / name);
    toy::write_text(infra / "global_energy_mix.json",
                    R"({"USA": {"country_name": "United States", "carbon_intensity": 400, "year": 2030},
                        "CAN": {"country_name": "Canada", "carbon_intensity": 170.5},
                        "CHN": {"country_name": "China", "carbon_intensity": 600},
                        "NOR": {"country_name": "Norway", "carbon_intensity": 30},
                        "XXX": {"country_name": "No figure"}})");
    toy::write_text(infra / "2016" / "usa_emissions.json", R"({"california": {"emissions": 9999}})");
    toy::write_text(infra / "2023" / "usa_emissions.json",
                    R"({"_unit": {"emissions": 1}, "california": {"emissions": 1000, "regionCode": "CA"}})");
    toy::write_text(
        infra / "2023" / "canada_energy_mix.json",
        R"({"alberta": {"coal": 50, "naturalGas": 30, "petroleum": 10, "hydro": 110, "total": 200}})");
    toy::write_text(
        infra / "2023" / "china_provincial_emissions.json",
        R"({"data": {"CN-NM": {"emission_factor": 647.9, "names": ["inner mongolia", "neimenggu"]}}})");
    toy::write_text(infra / "nordic_emissions.json", R"({"data": {"NO2": {"emission_factor": 12.5}}})");
    toy::write_text(folder / "cloud/impact.csv",
                    "\xEF\xBB\xBFprovider,providerName,region,country_name,countryIsoCode,state,city,impact\n"
                    "gcp,\"Google, Inc\",europe-x1,France,FRA,,Paris,16\n"
                    "gcp,Google,us-x1,United States,USA,Iowa,Council Bluffs,394.5\n");
  }
  operator std::filesystem::path() const { return folder / ""; }
};

TEST_CASE("the table of countries has each once, with plausible figures") {
  std::set<std::string_view> codes;
  for (const auto& country : etude::detail::national_intensities) {
    CHECK(codes.insert(country.iso_code).second);
    CHECK(country.iso_code.size() == 3);
    CHECK_FALSE(country.name.empty());
    CHECK(country.g_per_kwh > 10);
    CHECK(country.g_per_kwh < 1000);
  }
  CHECK(codes.size() == 78);
}

TEST_CASE("a country uses its own figure") {
  const auto france = carbon_intensity({.country_iso_code = "FRA"}, "");
  CHECK(france.kg_per_kwh == Approx(0.056039));
  CHECK(france.country_name == "France");
  CHECK(france.warning.empty());
}

TEST_CASE("without a configured place it is the world's average, and never a guessed country") {
  const auto nowhere = carbon_intensity({}, "");
  CHECK(nowhere.kg_per_kwh == Approx(0.475));
  CHECK(nowhere.country_name.empty());
  CHECK(nowhere.country_iso_code.empty());
  CHECK(toy::contains(nowhere.warning, "CODECARBON_COUNTRY_ISO_CODE"));

  const auto unknown = carbon_intensity({.country_iso_code = "XYZ"}, "");
  CHECK(unknown.kg_per_kwh == Approx(0.475));
  CHECK(unknown.country_iso_code == "XYZ");
  CHECK(toy::contains(unknown.warning, "XYZ isn't known without data_dir"));
}

TEST_CASE("a forced figure is used in any place") {
  const auto forced = carbon_intensity({.country_iso_code = "FRA", .force_g_per_kwh = 12.5}, "");
  CHECK(forced.kg_per_kwh == 0.0125);
  CHECK(forced.country_name == "France");
  CHECK(carbon_intensity({.force_g_per_kwh = 0}, "").kg_per_kwh == 0);
  CHECK(carbon_intensity({.force_g_per_kwh = 0}, "").warning.empty());
}

TEST_CASE("a region without a table counts as its country, and that is reported") {
  const auto state = carbon_intensity({.country_iso_code = "USA", .region = "california"}, "");
  CHECK(state.kg_per_kwh == Approx(0.369473));
  CHECK(state.region == "california");
  CHECK(toy::contains(state.warning, "'california' isn't known without data_dir"));
}

TEST_CASE("CodeCarbon's tables contain regions") {
  const Tables tables;
  const auto of = [&](const std::string& country, const std::string& region) {
    return carbon_intensity({.country_iso_code = country, .region = region}, tables);
  };
  CHECK(of("USA", "california").kg_per_kwh == Approx(0.45359237));  // 1000 lbs, from the newer of two tables
  CHECK(of("USA", "california").warning.empty());
  CHECK(of("CAN", "alberta").kg_per_kwh ==
        Approx(0.25 * 0.995725971 + 0.15 * 0.7438415916 + 0.05 * 0.8166885263));
  CHECK(of("NOR", "no2").kg_per_kwh == Approx(0.0125));
  CHECK(of("CHN", "neimenggu").kg_per_kwh == Approx(0.6479));
  CHECK(of("CHN", "inner mongolia autonomous region").kg_per_kwh == Approx(0.6479));

  const auto unknown = of("USA", "atlantis");
  CHECK(unknown.kg_per_kwh == Approx(0.4));
  CHECK(toy::contains(unknown.warning, "'atlantis' isn't known, so that of United States counts"));
  CHECK(of("USA", "_unit").kg_per_kwh == Approx(0.4));
  CHECK(of("NOR", "no9").kg_per_kwh == Approx(0.03));
  CHECK(of("XXX", "").kg_per_kwh == Approx(0.475));
  CHECK(of("XXX", "").country_name == "No figure");
}

TEST_CASE("a cloud uses its own figure and names its place") {
  const Tables tables;
  const auto paris = carbon_intensity(
      {.country_iso_code = "USA", .cloud_provider = "gcp", .cloud_region = "europe-x1"}, tables);
  CHECK(paris.kg_per_kwh == Approx(0.016));
  CHECK(paris.country_iso_code == "FRA");
  CHECK(paris.country_name == "France");
  CHECK(paris.region == "Paris");
  CHECK(paris.warning.empty());
  CHECK(carbon_intensity({.cloud_provider = "gcp", .cloud_region = "us-x1"}, tables).region == "Iowa");

  const auto unknown = carbon_intensity(
      {.country_iso_code = "USA", .cloud_provider = "aws", .cloud_region = "us-east-1"}, tables);
  CHECK(unknown.kg_per_kwh == Approx(0.4));
  CHECK(toy::contains(unknown.warning, "aws us-east-1 isn't known, so that of United States counts"));
}

TEST_CASE("missing and invalid tables are refused") {
  const toy::Folder folder;
  const auto fault = [&](const etude::detail::CarbonPlace& place) {
    return toy::fault_of<etude::ArgumentError>([&] { carbon_intensity(place, std::string(folder)); });
  };
  CHECK(toy::contains(fault({.country_iso_code = "FRA"}), "global_energy_mix.json can't be read"));
  std::filesystem::create_directories(folder / "private_infra");
  toy::write_text(folder / "private_infra/global_energy_mix.json", "[]");
  CHECK(toy::contains(fault({.country_iso_code = "FRA"}), "isn't a JSON object"));
  toy::write_text(folder / "private_infra/global_energy_mix.json", "{}");
  CHECK(toy::contains(fault({.country_iso_code = "USA", .region = "ohio"}), "usa_emissions.json"));
}

}  // namespace integrations_codecarbon_intensity_test
