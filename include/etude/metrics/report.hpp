#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "etude/metrics/metrics.hpp"

namespace etude {

class FileSystem;

/// Metrics as a table with aligned columns, as Hugging Face's `log_metrics` prints them: sorted by name,
/// runtimes as H:MM:SS.hh, bytes of `_mem_` in MB, floating-point operations in GF.
std::string format_metrics(std::string_view split, const Metrics& metrics);

/// Writes `directory/SPLIT_results.json`; with `combined` adds the metrics to `directory/all_results.json`
/// too, where what other splits have put there stays. Throws CheckpointError, and CheckpointError too if
/// all_results.json is there and is no JSON object; it is left as it is then.
void save_metrics(FileSystem& files, const std::filesystem::path& directory, std::string_view split,
                  const Metrics& metrics, bool combined = true);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/report.ipp"
#endif
