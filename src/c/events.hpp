#pragma once

#include <etude.h>

#include <optional>
#include <string>
#include <string_view>

#include "trainer.hpp"

/// An event that a callback of the program gets. Its fields are read by name.
struct etude_event {
  const char* name;
  etude_trainer& trainer;
  const void* event;  ///< of the type that the two functions expect
  std::optional<double> (*number)(const void* event, std::string_view name);
  std::optional<std::string> (*text)(const void* event, std::string_view name);
  mutable std::string last_text = {};  ///< returned by etude_event_text
};
