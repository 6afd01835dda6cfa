#pragma once

#include <map>
#include <string>
#include <vector>

#include "etude/integrations/codecarbon.hpp"

namespace etude::inline v0::detail {

/// A value from CodeCarbon's configuration, and its source: a variable's name or a file's path.
struct ConfiguredValue {
  std::string value, source;
};
using CodeCarbonConfiguration = std::map<std::string, ConfiguredValue>;

/// Reads the variables CODECARBON_... (in any case), `./.codecarbon.config` and the same file in the home
/// folder; earlier sources win. Empty values count as unset.
CodeCarbonConfiguration codecarbon_configuration();

/// A CodeCarbonCallback whose options all have values, or are deliberately empty.
struct CodeCarbonSettings {
  CodeCarbonCallback options;
  std::vector<std::string> without_effect;  ///< Configured names that have no effect here.
};

/// Completes `options` from the configuration, or else with CodeCarbon's defaults. Throws ArgumentError for
/// invalid values.
CodeCarbonSettings codecarbon_settings(const CodeCarbonCallback& options,
                                       const CodeCarbonConfiguration& configured,
                                       const std::string& training_output_dir);

}  // namespace etude::inline v0::detail
