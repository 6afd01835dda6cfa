#pragma once

#include <nlohmann/json.hpp>

#include "etude/integrations/wandb/records.hpp"

namespace etude::inline v0::detail {

/// Information about the machine and the program, without extra libraries. Leaves out arguments and
/// environment variables, which may be secret.
WandbEnvironment wandb_environment(WandbTime start);

/// `environment` in the form of wandb-metadata.json.
nlohmann::ordered_json wandb_metadata(const WandbEnvironment& environment);

}  // namespace etude::inline v0::detail
