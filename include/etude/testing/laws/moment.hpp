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

namespace etude::laws::detail {

/// What disturbs a training from outside the callback.
struct Disruption : Error {
  using Error::Error;
};

/// How, and where.
struct Disturbance {
  enum class Way { none, throws, throws_stop, asks_to_stop };
  Way way = Way::none;
  std::string_view event = {};  ///< or, in words, a forward of the model
  bool before = false;          ///< the callback hears of the event, or behind it
  int nth = 1;                  ///< such event

  std::string words() const;
};

/// How everything stood behind an event.
struct Moment {
  std::string_view event = {};
  std::int64_t step = 0;
  std::vector<std::pair<std::string, torch::Tensor>> weights = {};
  std::vector<std::pair<std::string, bool>> modes = {};
  torch::Tensor random = {};

  std::string words() const;
};

/// What was seen of one `train()`.
struct Run {
  std::vector<Moment> moments = {};
  std::optional<std::size_t> asked = {};   ///< How many moments had passed when it was asked to stop.
  std::vector<std::string> breaches = {};  ///< of the first law
  std::vector<std::pair<std::int64_t, std::filesystem::path>> kept = {};  ///< Folders as they were at `Save`.
  bool disturbed = false;
  std::string error = {};  ///< What came out of it, but for what was thrown to disturb it.
  bool came_out = false;   ///< What was thrown to disturb it.

  // In the end.
  nlohmann::ordered_json logs = {};
  std::vector<nlohmann::ordered_json> states = {};
};

Moment moment_of(const Context& e, std::string_view event);

}  // namespace etude::laws::detail

#ifndef ETUDE_COMPILED
#include "etude/testing/laws/impl/moment.ipp"
#endif
