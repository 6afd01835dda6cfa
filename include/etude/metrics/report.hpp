#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "etude/metrics/metrics.hpp"

namespace etude::inline v0 {

class FileSystem;

/// Formats metrics as an aligned table like Hugging Face's `log_metrics`: sorted by name, runtimes as
/// H:MM:SS.hh, bytes of `_mem_` in MB, floating-point operations in GF.
std::string format_metrics(std::string_view split, const Metrics& metrics);

/// Writes `directory/SPLIT_results.json`; with `combined`, also merges the metrics into
/// `directory/all_results.json`, keeping the metrics of other splits. Throws CheckpointError if writing
/// fails, or if all_results.json exists but isn't a JSON object, which is then left unchanged.
void save_metrics(FileSystem& files, const std::filesystem::path& directory, std::string_view split,
                  const Metrics& metrics, bool combined = true);

}  // namespace etude::inline v0
