#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "etude/integrations/codecarbon/callback.hpp"

namespace etude::detail {

/// A value that CodeCarbon was configured with, and where: the name of a variable, or the path of a file.
struct ConfiguredValue {
  std::string value, source;
};
using CodeCarbonConfiguration = std::map<std::string, ConfiguredValue>;

/// What the variables CODECARBON_... say, in any case, over `./.codecarbon.config`, over the one in the home
/// folder. What is empty counts as not said.
CodeCarbonConfiguration codecarbon_configuration();

/// A CodeCarbonCallback whose options all have values, or are empty on purpose.
struct CodeCarbonSettings {
  CodeCarbonCallback options;
  std::vector<std::string> without_effect;  ///< Names that were configured and mean nothing here.
};

/// `options`, and what isn't given there as it was configured, or else CodeCarbon's default. Throws
/// ArgumentError for values that can't be.
CodeCarbonSettings codecarbon_settings(const CodeCarbonCallback& options,
                                       const CodeCarbonConfiguration& configured,
                                       const std::string& training_output_dir);

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/codecarbon/impl/settings.ipp"
#endif
