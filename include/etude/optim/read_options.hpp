#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "etude/reflect/json.hpp"
#include "etude/reflect/json_fields.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {
namespace detail {

void read_options(const nlohmann::json& values, const std::vector<JsonField>& options,
                  std::string_view where);

}  // namespace detail

/// Sets the members of `options` named in the JSON object `values`. Throws an ArgumentError that lists all
/// unknown names and all values of the wrong type; `where` says in the message where they come from
/// ("optim_args of sgd").
template <ReflectedStruct Options>
void read_options(const nlohmann::json& values, Options& options, std::string_view where) {
  detail::read_options(values, detail::json_fields(options), where);
}

}  // namespace etude::inline v0
