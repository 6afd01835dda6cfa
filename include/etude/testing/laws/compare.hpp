#pragma once

#include <torch/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/testing/laws/moment.hpp"

namespace etude::laws::detail {

/// What is another than expected, in words; unset if nothing is.
using Difference = std::optional<std::string>;

Difference difference(const std::vector<std::pair<std::string, torch::Tensor>>& expected,
                      const std::vector<std::pair<std::string, torch::Tensor>>& seen);

/// Of weights, modes and random numbers; not of where it was.
Difference difference(const Moment& expected, const Moment& seen);

/// Which names have values that may differ.
class Varying {
 public:
  explicit Varying(std::vector<std::string> names) : names_(std::move(names)) {}
  bool has(const std::string& name) const;

 private:
  std::vector<std::string> names_;
};

/// The first value that is another, with its place. `tolerance` is relative.
Difference difference(const nlohmann::ordered_json& expected, const nlohmann::ordered_json& seen,
                      const Varying& varying, const std::string& place, double tolerance = 0);

/// Of whole runs of the same callback: from the end back, as far as the shorter one goes if `from_the_end`.
Difference difference(const Run& expected, const Run& seen, const Varying& varying, bool with_states = true,
                      bool from_the_end = false);

/// Texts that begin with the folder of a run are the same in all runs then.
void replace_folder(nlohmann::ordered_json& json, const std::filesystem::path& folder);

}  // namespace etude::laws::detail

#ifndef ETUDE_COMPILED
#include "etude/testing/laws/impl/compare.ipp"
#endif
