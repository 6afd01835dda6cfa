#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/events.hpp"

namespace etude::inline v0::laws::detail {

/// Thrown or requested to disturb a training from outside the callback.
struct Disruption : Error {
  using Error::Error;
};

/// How and where to disturb a training.
struct Disturbance {
  enum class Way { none, throws, throws_stop, asks_to_stop };
  Way way = Way::none;
  std::string_view event = {};  ///< or a description of one of the model's forward passes
  bool before = false;          ///< before, not after, the callback handles the event
  int nth = 1;                  ///< at the nth such event

  std::string words() const;
};

/// The state after an event.
struct Moment {
  std::string_view event = {};
  std::int64_t step = 0;
  std::vector<std::pair<std::string, torch::Tensor>> weights = {};
  std::vector<std::pair<std::string, bool>> modes = {};
  torch::Tensor random = {};

  std::string words() const;
};

/// The observations of one `train()`.
struct Run {
  std::vector<Moment> moments = {};
  std::optional<std::size_t> asked = {};   ///< The number of moments before it was asked to stop.
  std::vector<std::string> breaches = {};  ///< Breaches of the first law.
  std::vector<std::pair<std::int64_t, std::filesystem::path>> kept =
      {};  ///< Folders copied at `Save`, by step.
  bool disturbed = false;
  std::string error = {};  ///< The exception that `train()` threw, unless it was the disturbance.
  bool came_out = false;   ///< Whether `train()` threw the disturbance's exception.

  // At the end:
  nlohmann::ordered_json logs = {};
  std::vector<nlohmann::ordered_json> states = {};
};

Moment moment_of(const Context& e, std::string_view event);

}  // namespace etude::inline v0::laws::detail
