#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "etude/integrations/wandb/records.hpp"

namespace etude::detail {

/// What the machine and the program are, as far as they can be told without any library. Neither arguments
/// nor variables of the environment, which may be secrets.
WandbEnvironment wandb_environment(WandbTime start);

/// The same as wandb-metadata.json has it.
nlohmann::ordered_json wandb_metadata(const WandbEnvironment& environment);

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/wandb/impl/environment.ipp"
#endif
