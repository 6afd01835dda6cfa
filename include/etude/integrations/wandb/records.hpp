#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

/// The messages of Weights & Biases' transaction log (wandb_internal.proto) that an offline run needs. Each
/// function returns the bytes of one message, which `wandb_record` wraps in a Record.
namespace etude::inline v0::detail {

using WandbTime = std::chrono::system_clock::time_point;

/// The contents of a Record, by field number.
enum class WandbKind : std::uint32_t {
  history = 2,
  summary = 3,
  config = 5,
  files = 6,
  artifact = 8,
  metric = 12,
  run = 17,
  exit = 18,
  header = 21,
  environment = 26
};

std::string wandb_record(std::int64_t number, WandbKind kind, std::string_view message);

/// A value as JSON, with its name or its nested path.
struct WandbItem {
  std::vector<std::string> path;
  std::string json = {};
};
using WandbItems = std::vector<WandbItem>;

/// A number as JSON with Python's NaN, Infinity and -Infinity, which Weights & Biases preserves.
std::string wandb_number(double value);

/// Any other value as JSON. Non-finite numbers in it become text, and invalid UTF-8 is replaced.
std::string wandb_json(nlohmann::ordered_json value);

struct WandbRunInfo {
  std::string id = {}, entity = {}, project = {}, group = {}, job_type = {}, name = {}, notes = {}, host = {},
              sweep_id = {};
  std::vector<std::string> tags = {};
  nlohmann::ordered_json config = {};  ///< An object.
  WandbTime start = {};
  bool resumed = false;  ///< Continues a run that may already be on the server.
  std::int64_t starting_step = 0;
  double starting_seconds = 0;  ///< The run time of the runs before this one.
};

struct WandbMetric {
  std::string name = {}, glob = {}, step_metric = {};
  bool defined = false;   ///< Defined by the program, not found by the glob.
  bool expanded = false;  ///< Found by the glob.
};

struct WandbEnvironment {
  std::string os = {}, program = {}, root = {}, host = {}, executable = {}, cpu_model = {};
  WandbTime start = {};
  std::uint32_t cpu_count = 0;
  std::uint64_t memory_bytes = 0, disk_bytes = 0, disk_used_bytes = 0;
  std::vector<std::string> gpus = {};  ///< Their names.
};

struct WandbFile {
  std::string path = {};        ///< Within the artifact.
  std::string local_path = {};  ///< A copy that `wandb sync` may remove, as it does.
  std::string digest = {};      ///< MD5 in base64.
  std::int64_t size = 0;
};

struct WandbArtifact {
  std::string run_id = {}, project = {}, entity = {}, type = {}, name = {}, digest = {}, metadata = {},
              client_id = {}, sequence_client_id = {};
  std::vector<std::string> aliases = {};
  std::vector<WandbFile> files = {};
};

std::string wandb_header_message();
std::string wandb_run_message(const WandbRunInfo& run);
std::string wandb_config_message(const nlohmann::ordered_json& config);
std::string wandb_metric_message(const WandbMetric& metric);
std::string wandb_history_message(const WandbItems& row, std::int64_t step);
std::string wandb_summary_message(const WandbItems& values);
std::string wandb_file_message(const std::string& path);
std::string wandb_environment_message(const WandbEnvironment& environment);
std::string wandb_artifact_message(const WandbArtifact& artifact);
std::string wandb_exit_message(int exit_code, std::int64_t seconds);

}  // namespace etude::inline v0::detail
