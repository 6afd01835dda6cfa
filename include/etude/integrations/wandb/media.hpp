#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "etude/metrics/sample.hpp"

namespace etude::inline v0::detail {

/// A sample as wandb.Image, wandb.Audio or, for a text, wandb.Html keeps it in a run.
struct WandbMedia {
  std::string path;              ///< the file's path within the run's `files`
  std::string bytes;             ///< the file's contents
  nlohmann::ordered_json value;  ///< the entry in the history's row
};

/// `key` is the sample's name in the row, and `step` the row's number.
WandbMedia wandb_media(const std::string& key, std::int64_t step, const Sample& sample);

}  // namespace etude::inline v0::detail
