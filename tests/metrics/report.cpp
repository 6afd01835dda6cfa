#include "etude/metrics/report.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "etude/io/file_system.hpp"

namespace metrics_report_test {

nlohmann::json read(const std::filesystem::path& path) { return nlohmann::json::parse(toy::read_text(path)); }

TEST_CASE("metrics are printed as Hugging Face's log_metrics prints them") {
  const etude::Metrics metrics{{"train_runtime", 3725.5},
                               {"train_mem_cpu_alloc_delta", 5.0 * (1 << 20) + 17},
                               {"total_flos", 3.0 * (1 << 30)},
                               {"train_loss", 0.123456}};
  CHECK(etude::format_metrics("train", metrics) ==
        "***** train metrics *****\n"
        "  total_flos                =        3GF\n"
        "  train_loss                =     0.1235\n"
        "  train_mem_cpu_alloc_delta =        5MB\n"
        "  train_runtime             = 1:02:05.50\n");
}

TEST_CASE("metrics are saved by split, and all splits together") {
  const toy::Folder folder;
  auto& files = etude::default_file_system();
  etude::save_metrics(files, std::string(folder), "train", {{"train_loss", 1.5}});
  etude::save_metrics(files, std::string(folder), "eval",
                      {{"eval_loss", std::numeric_limits<double>::infinity()}});
  etude::save_metrics(files, std::string(folder), "test", {{"test_loss", 3}}, false);
  CHECK(read(folder / "train_results.json") == nlohmann::json{{"train_loss", 1.5}});
  CHECK(read(folder / "test_results.json") == nlohmann::json{{"test_loss", 3.0}});
  CHECK(read(folder / "all_results.json") == nlohmann::json{{"train_loss", 1.5}, {"eval_loss", nullptr}});
}

TEST_CASE("results that aren't a JSON object are left alone") {
  const toy::Folder folder;
  toy::write_text(folder / "all_results.json", "mine");
  CHECK_THROWS_AS(
      etude::save_metrics(etude::default_file_system(), std::string(folder), "eval", {{"eval_loss", 1}}),
      etude::CheckpointError);
  CHECK(toy::read_text(folder / "all_results.json") == "mine");
}

}  // namespace metrics_report_test
