#include "etude/integrations/codecarbon/configuration.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/variables.hpp"
#include "etude/base/error.hpp"

namespace integrations_codecarbon_settings_test {

using etude::CodeCarbonCallback;
using etude::detail::codecarbon_settings;
using etude::detail::CodeCarbonConfiguration;

std::string fault(const CodeCarbonCallback& options, const CodeCarbonConfiguration& configured = {}) {
  return toy::fault_of<etude::ArgumentError>([&] { codecarbon_settings(options, configured, "out"); });
}

TEST_CASE("variables override the local file, which overrides the one at home") {
  const toy::Folder home, here;
  toy::write_text(home / ".codecarbon.config",
                  "[codecarbon]\nproject_name = home\nregion = home\npue = 1.1\nwue = 1\n");
  toy::write_text(here / ".codecarbon.config", "[codecarbon]\nproject_name = here\nregion = here\nwue =\n");
  const auto before = std::filesystem::current_path();
  const toy::Variable at_home("HOME", home), name("CODECARBON_PROJECT_NAME", "variable"),
      small("codecarbon_experiment_id", "small"), empty("CODECARBON_TRACKING_MODE", "");
  std::filesystem::current_path(std::string(here));
  const auto configured = etude::detail::codecarbon_configuration();
  std::filesystem::current_path(before);
  CHECK(configured.at("project_name").value == "variable");
  CHECK(configured.at("project_name").source == "CODECARBON_PROJECT_NAME");
  CHECK(configured.at("experiment_id").value == "small");
  CHECK(configured.at("region").value == "here");
  CHECK(configured.at("pue").value == "1.1");
  CHECK(configured.at("wue").value == "1");
  CHECK_FALSE(configured.contains("tracking_mode"));
}

TEST_CASE("options override the configuration, which overrides the defaults") {
  const CodeCarbonConfiguration configured{
      {"project_name", {"configured", "CODECARBON_PROJECT_NAME"}},
      {"pue", {"1.5", "CODECARBON_PUE"}},
      {"wue", {"2", "CODECARBON_WUE"}},
      {"region", {"California", "CODECARBON_REGION"}},
      {"country_iso_code", {"usa", "CODECARBON_COUNTRY_ISO_CODE"}},
      {"force_mode_cpu_load", {"True", "CODECARBON_FORCE_MODE_CPU_LOAD"}},
      {"rapl_include_dram", {"false", "CODECARBON_RAPL_INCLUDE_DRAM"}},
      {"run_id", {"mine", "CODECARBON_RUN_ID"}},
      {"log_level", {"debug", "CODECARBON_LOG_LEVEL"}},
      {"api_key", {"secret", "CODECARBON_API_KEY"}}};
  const auto settings = codecarbon_settings({.project_name = "given", .wue = 0.0}, configured, "out");
  const auto& set = settings.options;
  CHECK(set.project_name == "given");
  CHECK(set.pue == 1.5);
  CHECK(set.wue == 0.0);
  CHECK(set.region == "california");
  CHECK(set.country_iso_code == "USA");
  CHECK(set.force_mode_cpu_load == true);
  CHECK(set.rapl_include_dram == false);
  CHECK(set.rapl_prefer_psys == std::nullopt);
  CHECK(set.state.run_id.empty());
  CHECK(set.measure_power_secs == 15);
  CHECK(set.output_dir == "out");
  CHECK(set.output_file == "emissions.csv");
  CHECK(set.experiment_id == "5b0fa12a-3dd7-45bb-9766-cc326314d9f1");
  CHECK(set.tracking_mode == "machine");
  CHECK(settings.without_effect == std::vector<std::string>{"api_key", "run_id"});
  CHECK(codecarbon_settings({}, {{"output_dir", {"there", "CODECARBON_OUTPUT_DIR"}}}, "out")
            .options.output_dir == "there");
}

TEST_CASE("only the file of CodeCarbon's outputs is used") {
  const auto saves = [](const std::string& methods, std::optional<bool> option = {}) {
    return codecarbon_settings({.save_to_file = option}, {{"output_methods", {methods, "X"}}}, "out");
  };
  CHECK(saves("csv").options.save_to_file == true);
  CHECK(saves("csv").without_effect.empty());
  CHECK(saves("api, CSV").options.save_to_file == true);
  CHECK(saves("api, CSV").without_effect == std::vector<std::string>{"output_methods"});
  CHECK(saves("api").options.save_to_file == false);
  CHECK(saves("api", true).options.save_to_file == true);
}

TEST_CASE("an invalid setting is reported with its place, its value and what is allowed") {
  CHECK(fault({.pue = 0.5}) == "pue is '0.5': must be 1 or more");
  CHECK(fault({}, {{"pue", {"0.5", "CODECARBON_PUE"}}}) == "CODECARBON_PUE is '0.5': must be 1 or more");
  CHECK(fault({}, {{"wue", {"a lot", "/home/a/.codecarbon.config"}}}) ==
        "wue in /home/a/.codecarbon.config is 'a lot': must be a number");
  CHECK(fault({}, {{"wue", {"nan", "CODECARBON_WUE"}}}) == "CODECARBON_WUE is 'nan': must be 0 or more");
  CHECK(fault({}, {{"save_to_file", {"perhaps", "CODECARBON_SAVE_TO_FILE"}}}) ==
        "CODECARBON_SAVE_TO_FILE is 'perhaps': must be true or false");
  CHECK(fault({.measure_power_secs = 0}) == "measure_power_secs is '0': must be 0.1 or more");
  CHECK(fault({.force_cpu_power = -1}) == "force_cpu_power is '-1': must be 0 or more");
  CHECK(fault({.tracking_mode = "thread"}) == "tracking_mode is 'thread': must be machine or process");
  CHECK(fault({.country_iso_code = "FR"}) ==
        "country_iso_code is 'FR': must be the three letters of ISO 3166 (FRA)");
  CHECK(fault({.output_file = "a/b.csv"}) ==
        "output_file is 'a/b.csv': must be the name of a file, without a folder");
  CHECK(fault({.data_dir = "/nonexistent"}) == "data_dir is '/nonexistent': must be a folder");
}

}  // namespace integrations_codecarbon_settings_test
