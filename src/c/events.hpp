#pragma once

#include <etude.h>

#include <optional>
#include <string>
#include <string_view>

#include "trainer.hpp"

/// An event, as a callback of the program gets it. Its fields are read by name.
struct etude_event {
  const char* name;
  etude_trainer& trainer;
  const void* event;  ///< of the type that the functions know
  std::optional<double> (*number)(const void* event, std::string_view name);
  std::optional<std::string> (*text)(const void* event, std::string_view name);
  mutable std::string last_text = {};  ///< that etude_event_text has handed out
};
