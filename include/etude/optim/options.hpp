#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/json_fields.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {
namespace detail {

/// Throws ArgumentError with these, one a line, behind `prefix` each, if there are any.
void throw_faults(std::vector<std::string> faults, std::string_view prefix = "");

/// Throws ArgumentError with every option that isn't what its definition allows.
template <ReflectedStruct Options>
void check_options(const Options& options, std::string_view prefix = "") {
  throw_faults(field_faults(options), prefix);
}

void read_options(const nlohmann::json& values, const std::vector<JsonField>& options,
                  std::string_view where);

}  // namespace detail

/// Sets the members of `options` that `values`, a JSON object, names. Throws ArgumentError with all names
/// that are unknown and all values of a wrong kind; `where` says where they were given ("optim_args of sgd").
template <ReflectedStruct Options>
void read_options(const nlohmann::json& values, Options& options, std::string_view where) {
  detail::read_options(values, detail::json_fields(options), where);
}

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/optim/impl/options.ipp"
#endif
