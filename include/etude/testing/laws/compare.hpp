#pragma once

#include <torch/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/testing/laws/moment.hpp"

namespace etude::inline v0::laws::detail {

/// Describes a difference from the expected value; unset if there is none.
using Difference = std::optional<std::string>;

Difference difference(const std::vector<std::pair<std::string, torch::Tensor>>& expected,
                      const std::vector<std::pair<std::string, torch::Tensor>>& seen);

/// Compares weights, modes and random numbers, but not the event or the step.
Difference difference(const Moment& expected, const Moment& seen);

/// Names whose values may differ.
class Varying {
 public:
  explicit Varying(std::vector<std::string> names) : names_(std::move(names)) {}
  bool has(const std::string& name) const;

 private:
  std::vector<std::string> names_;
};

/// Describes the first value that differs and where. `tolerance` is relative.
Difference difference(const nlohmann::ordered_json& expected, const nlohmann::ordered_json& seen,
                      const Varying& varying, const std::string& place, double tolerance = 0);

/// Compares whole runs of the same callback; with `from_the_end`, backwards from the end, for the length of
/// the shorter run.
Difference difference(const Run& expected, const Run& seen, const Varying& varying, bool with_states = true,
                      bool from_the_end = false);

/// Replaces a run's folder at the start of strings, so that they are equal in all runs.
void replace_folder(nlohmann::ordered_json& json, const std::filesystem::path& folder);

}  // namespace etude::inline v0::laws::detail
