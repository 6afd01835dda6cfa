#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "etude/optim/parameter_groups.hpp"

/// Options that name parameters and modules by patterns separated by spaces, such as "*attn* *mlp*". The
/// patterns are those of ParameterRule.
namespace etude::inline v0::detail {

bool any_pattern_names(std::string_view patterns, std::string_view parameter);

/// Throws ArgumentError for a pattern that matches none of the parameters; `option` is the name of the
/// option.
void check_name_patterns(std::string_view option, std::string_view patterns,
                         const std::vector<ParameterGroup>& groups);

}  // namespace etude::inline v0::detail
